#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

/// A compiled Unicode regular expression (PCRE2, with its JIT where there is one).
class Regex {
 public:
  /// Throws InputError naming `where` if the pattern is wrong.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// [start, end) of every match in valid UTF-8 `text`, in order; empty matches are left out.
  /// Throws InputError if the pattern needs too much work on this text.
  std::vector<std::pair<size_t, size_t>> matches(std::string_view text) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace sluice
