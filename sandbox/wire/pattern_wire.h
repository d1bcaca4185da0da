#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "sandbox/wire/wire.h"
#include "scripting/pattern/solution.h"

namespace sluice {

void put_pattern(WireWriter& writer, const Pattern& pattern);
/// Throws InputError as the reader does, and for what is no expression.
Pattern take_pattern(WireReader& reader);

/// Null is one, too, and stands for solutions of more pieces than are read.
std::string encode_solution(const PatternSolution* solution);
/// Trusts no count, index, divisor or size of a number (QuasiAffineFunction::fits); what the functions say is left to those who
/// ask them. Throws InputError.
std::shared_ptr<const PatternSolution> decode_solution(std::string_view bytes);

}  // namespace sluice
