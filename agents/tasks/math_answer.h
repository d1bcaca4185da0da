#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

/// What stands in the last complete \boxed{...} (or \fbox{...}) of `text`; braces nest, escaped braces do not count.
std::optional<std::string> last_boxed(std::string_view text);

/// One spelling for answers that mean the same: TeX spacing, \left and \right, dollar signs, \text{...}, \dfrac and \tfrac,
/// degrees, percent signs, thousands separators, outer braces, case and spaces are removed; a trailing full stop, too.
std::string normalised_answer(std::string_view answer);

/// Equal after normalisation, or the same integer, or both numbers (decimals, fractions a/b and \frac{a}{b}) of the same
/// value within 1e-9 relative.
bool same_answer(std::string_view left, std::string_view right);

}  // namespace sluice
