// What every program of peers needs of CUDA: checks, device memory, and the numbers of a case.
#pragma once
#include <cuda_runtime.h>

#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace peers {

inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + call + ": " + cudaGetErrorString(status));
}

#define PEERS_CHECK(...) ::peers::check((__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) { PEERS_CHECK(cudaMalloc(&data_, bytes())); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { upload(values.data(), 0, values.size()); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  size_t size() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }

  void upload(const T* values, size_t at, size_t count) const {
    PEERS_CHECK(cudaMemcpy(data_ + at, values, count * sizeof(T), cudaMemcpyHostToDevice));
  }
  void fill_bytes(int value) const { PEERS_CHECK(cudaMemset(data_, value, bytes())); }
  std::vector<T> download() const {
    std::vector<T> values(count_);
    PEERS_CHECK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t count_;
  T* data_ = nullptr;
};

/// The numbers of a case: "16,8,4,32768,0".
inline std::vector<int> numbers_of(const std::string& text, size_t count) {
  std::vector<int> numbers;
  std::stringstream stream(text);
  for (std::string number; std::getline(stream, number, ',');) numbers.push_back(std::stoi(number));
  if (numbers.size() != count) throw std::runtime_error("case " + text + " has not " + std::to_string(count) + " numbers");
  return numbers;
}

/// `main` of a program that is called with seconds of timing and cases: `run(workspace, seconds, case)` has them in turn.
template <typename Workspace, typename Run>
int run_cases(int count, char** arguments, const Run& run) {
  if (count < 3) return std::fprintf(stderr, "usage: %s SECONDS CASE...\n", arguments[0]), 2;
  try {
    const Workspace workspace;
    for (int i = 2; i < count; ++i) run(workspace, std::stod(arguments[1]), std::string(arguments[i]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], error.what());
    return 1;
  }
  return 0;
}

}  // namespace peers
