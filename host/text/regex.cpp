#define PCRE2_CODE_UNIT_WIDTH 8
#include "host/text/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  const int length = pcre2_get_error_message(code, buffer, sizeof(buffer));
  return length < 0 ? fmt::format("error {}", code) : std::string(reinterpret_cast<const char*>(buffer));
}

constexpr uint32_t kMatchLimit = 10'000'000;  // steps of backtracking in one match

}  // namespace

struct Regex::Compiled {
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code{nullptr, &pcre2_code_free};
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context{nullptr, &pcre2_match_context_free};
};

Regex::Regex(const std::string& pattern, const std::string& where) : compiled_(std::make_unique<Compiled>()) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  // \C matches single bytes: it would cut characters, and the next match would begin within one.
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  compiled_->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kOptions, &error, &offset, nullptr));
  if (compiled_->code == nullptr) {
    throw InputError(fmt::format("{}: the regular expression {} is wrong at character {}: {}", where, excerpt(pattern), offset,
                                 message_of(error)));
  }
  // Without a JIT matching is slower but the same.
  pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);
  compiled_->context.reset(pcre2_match_context_create(nullptr));
  if (compiled_->context == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(compiled_->context.get(), kMatchLimit);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

std::vector<std::pair<size_t, size_t>> Regex::matches(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr), &pcre2_match_data_free);
  if (data == nullptr) throw std::bad_alloc();
  std::vector<std::pair<size_t, size_t>> found;
  size_t at = 0;
  while (at < text.size()) {
    const int count = pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data.get(), compiled_->context.get());
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) throw InputError(fmt::format("the tokenizer's regular expression failed on the text: {}", message_of(count)));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    // \K can move the start of a match past its end; such a pattern splits nothing.
    if (range[1] <= range[0] || range[1] <= at) break;
    found.emplace_back(range[0], range[1]);
    at = range[1];
  }
  return found;
}

}  // namespace sluice
