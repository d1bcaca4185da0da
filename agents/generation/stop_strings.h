#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// Finds stop strings in a text that arrives in pieces. What may be the beginning of one is held back; the string itself and
/// all that follows is never given out.
class StopStrings {
 public:
  /// None of `strings` may be empty.
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

  /// What of the text so far may be given out now that `piece` is there.
  std::string add(std::string_view piece);
  /// What was held back: there is no more text.
  std::string end();
  bool found() const { return found_; }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool found_ = false;
};

}  // namespace sluice
