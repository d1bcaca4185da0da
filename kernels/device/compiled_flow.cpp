#include "kernels/device/compiled_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scripting/base/error.h"

namespace sluice {
namespace {

class JoinedStates final : public RequestState {
 public:
  explicit JoinedStates(std::vector<std::unique_ptr<RequestState>> parts) : parts_(std::move(parts)) {}

  size_t bytes() const override {
    size_t bytes = 0;
    for (const auto& part : parts_) bytes += part == nullptr ? 0 : part->bytes();
    return bytes;
  }
  void reset() override {
    for (const auto& part : parts_) {
      if (part != nullptr) part->reset();
    }
  }
  RequestState* find_program(int program) override {
    return program < 0 || program >= programs() ? nullptr : parts_[static_cast<size_t>(program)].get();
  }
  int programs() const override { return static_cast<int>(parts_.size()); }

 private:
  std::vector<std::unique_ptr<RequestState>> parts_;
};

}  // namespace

RequestState& RequestState::of_program(int program) {
  RequestState* const part = find_program(program);
  if (part == nullptr) throw InternalError(fmt::format("program {} of a flow keeps no state", program));
  return *part;
}

std::unique_ptr<RequestState> join_states(std::vector<std::unique_ptr<RequestState>> parts) {
  const bool keeps_any = std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part != nullptr; });
  if (!keeps_any) return nullptr;
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<JoinedStates>(std::move(parts));
}

}  // namespace sluice
