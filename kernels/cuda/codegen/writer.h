#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace sluice::cuda::codegen {

/// Source text under construction, indented by its braces.
class Writer {
 public:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    write(fmt::format(text, std::forward<Arguments>(arguments)...));
  }
  /// The line as it is, without formatting.
  void write(const std::string& text) { text_.append(2 * static_cast<size_t>(depth_), ' ').append(text).append("\n"); }
  /// A line that opens a block: " {" is added.
  template <class... Arguments>
  void open(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    write(fmt::format(text, std::forward<Arguments>(arguments)...) + " {");
    ++depth_;
  }
  void close(const char* behind = "") {
    --depth_;
    write(std::string("}") + behind);
  }
  /// The lines of `other`, further in.
  void append(const Writer& other) {
    for (size_t begin = 0; begin < other.text_.size();) {
      const size_t end = other.text_.find('\n', begin);
      write(other.text_.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
};

}  // namespace sluice::cuda::codegen
