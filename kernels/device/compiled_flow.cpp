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
  RequestState& of_program(int program) override {
    const bool is_there =
        program >= 0 && program < static_cast<int>(parts_.size()) && parts_[static_cast<size_t>(program)] != nullptr;
    if (!is_there) throw InternalError(fmt::format("program {} of a flow keeps no state", program));
    return *parts_[static_cast<size_t>(program)];
  }

 private:
  std::vector<std::unique_ptr<RequestState>> parts_;
};

}  // namespace

RequestState& RequestState::of_program(int program) {
  if (program != 0) throw InternalError(fmt::format("program {} of a flow that has one", program));
  return *this;
}

std::unique_ptr<RequestState> join_states(std::vector<std::unique_ptr<RequestState>> parts) {
  const bool keeps_any = std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part != nullptr; });
  if (!keeps_any) return nullptr;
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<JoinedStates>(std::move(parts));
}

}  // namespace sluice
