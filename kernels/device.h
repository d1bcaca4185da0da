#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device/attention_operations.h"
#include "kernels/device/cache_operations.h"
#include "kernels/device/model_operations.h"
#include "kernels/device/pass_batch.h"

namespace sluice {

struct DeviceInfo {
  std::string name;         // "cpu", "cuda"
  std::string description;  // "AVX3, 2 threads"
  DataType activation = DataType::kF32;
  int threads = 1;
  int most_group = 16;  // query heads that may share a KV head
  /// Operations return before they are done, so that the host has time to prepare the next pass.
  bool works_beside_host = false;
  /// It compiles kernels for each flow, which takes seconds where nobody has before.
  bool compiles_kernels = false;
};

/// A device: memory, the operations of a model, and flows. Not thread-safe: one engine thread owns it. Operations of a
/// pass may be asynchronous; `read` and `synchronize` wait. Shapes are checked at entry: InternalError names the
/// dimension that disagrees. No call between `begin_pass` and `end_pass` allocates once `reserve` has been called,
/// after flows were compiled.
class Device : public ModelOperations, public CacheOperations, public AttentionOperations {
 public:
  virtual const DeviceInfo& info() const = 0;

  virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;
  virtual void write(void* target, const void* host_source, size_t bytes) = 0;
  virtual void read(void* host_target, const void* source, size_t bytes) = 0;
  virtual void synchronize() = 0;
  /// Bytes of the device's memory that neither this process nor another has taken.
  virtual size_t free_bytes() const = 0;

  /// Sizes scratch memory for passes of up to these extents, so that steps need no allocation.
  struct Limits {
    int rows = 0;
    int sequences = 0;
    int pages_per_sequence = 0;
    int query_heads = 0;
    int kv_heads = 0;
    int head_dim = 0;
    int page = 128;      // tokens in a page; the largest, if it is not known
    int groups = 1;      // of layers' pages that a pass has (PassBatch::groups)
    int mask_words = 0;  // of a group in a pass
    int slot_heads = 1;  // slots of a row in a group, which KV heads have in turn
    int vocabulary = 0;  // columns of the logits that are sampled from, for up to `sequences` rows at a time
  };
  /// Throws InputError for heads that the device cannot attend.
  virtual void reserve(const Limits& limits) = 0;

  virtual void begin_pass(const PassBatch& batch, Pool& pool) = 0;
  virtual void end_pass() noexcept = 0;

  /// What a device remembers of operations that are the same in every decode step of one engine. Null: nothing.
  class Repetition {
   public:
    virtual ~Repetition() = default;
  };
  virtual std::unique_ptr<Repetition> create_repetition() { return nullptr; }
  /// Runs `operations` of a pass, or replays what they did in an earlier pass with as many sequences. They embed `tokens` [rows],
  /// run `flows` (by layer, null where it is dense; empty: all are), and must not wait, report to probes, or read rows by number
  /// (`gather_rows`); pool, matrices, weights, picks and flows are the same in all passes with one `repetition`. Passes with
  /// prefill are not replayed.
  virtual void repeat(Repetition* repetition, std::span<const int32_t> tokens, std::span<const CompiledFlow* const> flows,
                      const std::function<void()>& operations);
};

struct CpuOptions {
  int threads = 0;    // 0: all cores that this process may use
  bool tiles = true;  // AMX, where the processor has it, for prefill and products with bf16 weights; false: vectors everywhere
};
std::unique_ptr<Device> create_cpu_device(const CpuOptions& options = {});

/// "cpu" or "cuda". Throws InputError for a device that this build or machine does not have, naming what is missing.
std::unique_ptr<Device> create_device(const std::string& name, int threads = 0);
/// Throws InputError as create_device does for a device that is not there, without making one.
void require_device(const std::string& name);
/// Throws InputError for a name that create_device does not know.
void require_device_name(const std::string& name);

/// The GPUs that this process sees, each as CUDA_VISIBLE_DEVICES has to name it for a process that is to see no other.
std::vector<std::string> visible_gpus();

}  // namespace sluice
