#include "kernels/cuda/runtime/cupti_recorder.h"

#include <cupti.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/runtime/kernel_library.h"
#include "kernels/cuda/runtime/runtime.h"
#include "kernels/cuda/runtime/shared_library.h"
#include "scripting/base/error.h"

namespace sluice::cuda {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;  // some 4,000 kernels
constexpr const char* kInstallHint =
    "install CUPTI 13 (package cuda-cupti-13-0 of NVIDIA's repository, or a CUDA toolkit) and name the folder of libcupti.so.13 "
    "in LD_LIBRARY_PATH";
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};

struct Cupti {
  decltype(&::cuptiGetResultString) result_string;
  decltype(&::cuptiGetTimestamp) timestamp;
  decltype(&::cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&::cuptiActivityEnable) enable;
  decltype(&::cuptiActivityDisable) disable;
  decltype(&::cuptiActivityFlushAll) flush_all;
  decltype(&::cuptiActivityGetNextRecord) next_record;
  decltype(&::cuptiActivityGetNumDroppedRecords) dropped_records;

  void check(CUptiResult status, const char* what) const {
    if (status == CUPTI_SUCCESS) return;
    const char* text = nullptr;
    result_string(status, &text);
    throw InputError(fmt::format("CUPTI cannot record kernels: {}: {}", what, text == nullptr ? "unknown error" : text));
  }
};

Cupti load_cupti() {
  const SharedLibrary library("CUPTI, which records kernels,", {"libcupti.so.13"}, kInstallHint);
  Cupti cupti{};
  library.find("cuptiGetResultString", cupti.result_string);
  library.find("cuptiGetTimestamp", cupti.timestamp);
  library.find("cuptiActivityRegisterCallbacks", cupti.register_callbacks);
  library.find("cuptiActivityEnable", cupti.enable);
  library.find("cuptiActivityDisable", cupti.disable);
  library.find("cuptiActivityFlushAll", cupti.flush_all);
  library.find("cuptiActivityGetNextRecord", cupti.next_record);
  library.find("cuptiActivityGetNumDroppedRecords", cupti.dropped_records);
  return cupti;
}

const Cupti& cupti_library() {
  static const Cupti cupti = load_cupti();
  return cupti;
}

/// What CUPTI has handed over. Its callbacks, which it calls from a thread of its own, are told nothing of who asked, so there is
/// one for the process.
struct Records {
  std::mutex mutex;
  std::vector<DeviceActivity> activities;
  size_t dropped = 0;
};

Records& records() {
  static Records all;
  return all;
}

std::string name_of_copy(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy to the device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy to the host";
    default:
      return "copy on the device";
  }
}

/// One record as an activity. Those of other kinds, and those whose times CUPTI could not take (0), have no end.
DeviceActivity activity_of(const CUpti_Activity* record) {
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    return {kernel->name == nullptr ? "?" : kernel->name, kernel->start, kernel->end};
  }
  if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
    return {name_of_copy(copy->copyKind), copy->start, copy->end, false};
  }
  if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    return {"fill", fill->start, fill->end, false};
  }
  return {};
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::malloc(kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *most_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t /*bytes*/, size_t valid_bytes) {
  const Cupti& cupti = cupti_library();
  Records& all = records();
  const std::lock_guard lock(all.mutex);
  CUpti_Activity* record = nullptr;
  while (valid_bytes > 0 && cupti.next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    DeviceActivity activity = activity_of(record);
    if (activity.end > 0 && activity.end >= activity.start) all.activities.push_back(std::move(activity));
  }
  size_t dropped = 0;
  if (cupti.dropped_records(context, stream, &dropped) == CUPTI_SUCCESS) all.dropped += dropped;
  std::free(buffer);
}

uint64_t now(const Cupti& cupti) {
  uint64_t time = 0;
  cupti.check(cupti.timestamp(&time), "reading its clock");
  return time;
}

}  // namespace

CuptiRecorder::CuptiRecorder() {
  const Cupti& cupti = cupti_library();
  cupti.check(cupti.register_callbacks(give_buffer, take_buffer), "registering buffers");
  keep_libraries();
}

void CuptiRecorder::start() {
  const Cupti& cupti = cupti_library();
  wait_for_device();
  for (const CUpti_ActivityKind kind : kKinds) cupti.check(cupti.enable(kind), "enabling records");
  cupti.check(cupti.flush_all(0), "fetching records");
  {
    const std::lock_guard lock(records().mutex);
    records().activities.clear();
    records().dropped = 0;
  }
  started_ = now(cupti);
}

DeviceRecording CuptiRecorder::stop() {
  const Cupti& cupti = cupti_library();
  wait_for_device();
  DeviceRecording recording{.start = started_, .end = now(cupti)};
  cupti.check(cupti.flush_all(0), "fetching records");
  for (const CUpti_ActivityKind kind : kKinds) cupti.check(cupti.disable(kind), "disabling records");
  Records& all = records();
  const std::lock_guard lock(all.mutex);
  if (all.dropped > 0) throw InternalError(fmt::format("CUPTI lost {} records", all.dropped));
  recording.activities = std::exchange(all.activities, {});
  return recording;
}

}  // namespace sluice::cuda
