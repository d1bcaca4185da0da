#include "sandbox/wire/pattern_wire.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr size_t kMostPieces = size_t{1} << 12;
constexpr size_t kMostParts = size_t{1} << 12;  // of a piece
constexpr int64_t kLargest = int64_t{1} << 53;  // as isl's numbers are read

class SolutionWriter {
 public:
  explicit SolutionWriter(WireWriter& writer) : writer_(writer) {}

  void put(const QuasiAffineFunction& function) {
    put_count(function.pieces().size());
    for (const QuasiAffinePiece& piece : function.pieces()) {
      put_count(piece.divisions.size());
      for (const FloorDivision& division : piece.divisions) {
        put(division.numerator);
        writer_.number(division.denominator);
      }
      put_count(piece.constraints.size());
      for (const AffineConstraint& constraint : piece.constraints) {
        put(constraint.sum);
        writer_.number(constraint.is_equality);
      }
      put(piece.value);
    }
  }

 private:
  void put_count(size_t count) { writer_.number(static_cast<uint32_t>(count)); }
  void put(const AffineSum& sum) {
    for (const int64_t number : {sum.constant, sum.of_x, sum.of_n}) writer_.number(number);
    // Divisions behind the last that stands in it do not count.
    size_t count = sum.of_divisions.size();
    while (count > 0 && sum.of_divisions[count - 1] == 0) --count;
    put_count(count);
    for (size_t k = 0; k < count; ++k) writer_.number(sum.of_divisions[k]);
  }

  WireWriter& writer_;
};

class SolutionReader {
 public:
  explicit SolutionReader(WireReader& reader) : reader_(reader) {}

  QuasiAffineFunction function() {
    std::vector<QuasiAffinePiece> pieces;
    const size_t count = reader_.count("pieces", kMostPieces);
    for (size_t i = 0; i < count; ++i) pieces.push_back(piece());
    return QuasiAffineFunction(std::move(pieces));
  }

 private:
  QuasiAffinePiece piece() {
    QuasiAffinePiece piece;
    const size_t divisions = reader_.count("divisions", kMostParts);
    for (size_t k = 0; k < divisions; ++k) {
      FloorDivision division{.numerator = sum(k), .denominator = number("a divisor")};
      if (division.denominator < 1) WireReader::refuse("a divisor", "is not positive");
      piece.divisions.push_back(std::move(division));
    }
    const size_t constraints = reader_.count("constraints", kMostParts);
    for (size_t k = 0; k < constraints; ++k) {
      AffineSum of = sum(divisions);
      piece.constraints.push_back({std::move(of), reader_.flag("an equality")});
    }
    piece.value = sum(divisions);
    return piece;
  }

  /// In which so many divisions may stand.
  AffineSum sum(size_t divisions) {
    AffineSum sum;
    sum.constant = number("a constant");
    sum.of_x = number("a factor");
    sum.of_n = number("a factor");
    const size_t count = reader_.count("factors of divisions", divisions);
    for (size_t k = 0; k < count; ++k) sum.of_divisions.push_back(number("a factor of a division"));
    return sum;
  }

  int64_t number(std::string_view what) {
    const auto value = reader_.number<int64_t>(what);
    if (value < -kLargest || value > kLargest) WireReader::refuse(what, "is too large");
    return value;
  }

  WireReader& reader_;
};

}  // namespace

void put_pattern(WireWriter& writer, const Pattern& pattern) {
  writer.number(static_cast<uint32_t>(pattern.nodes().size()));
  for (const Pattern::Node& node : pattern.nodes()) {
    writer.number(node.kind);
    Pattern::for_each_number(node, [&writer](int value) { writer.number(value); });
  }
}

Pattern take_pattern(WireReader& reader) {
  std::vector<Pattern::Node> nodes;
  const size_t count = reader.count("parts of a pattern", Pattern::kMostNodes);
  for (size_t i = 0; i < count; ++i) {
    Pattern::Node node;
    node.kind = reader.one_of("a part of a pattern", Pattern::Kind::kSpread);
    Pattern::for_each_number(node, [&reader](int& value) { value = reader.number<int32_t>("a number of a pattern"); });
    nodes.push_back(node);
  }
  return Pattern::of(std::move(nodes));
}

std::string encode_solution(const PatternSolution* solution) {
  const auto is_large = [](const QuasiAffineFunction& function) {
    return function.pieces().size() > kMostPieces ||
           std::any_of(function.pieces().begin(), function.pieces().end(), [](const QuasiAffinePiece& piece) {
             return piece.divisions.size() > kMostParts || piece.constraints.size() > kMostParts;
           });
  };
  if (solution != nullptr && (is_large(solution->last_reader) || is_large(solution->last_key))) solution = nullptr;
  WireWriter writer;
  writer.number(solution != nullptr);
  if (solution == nullptr) return writer.bytes();
  writer.number(solution->is_empty);
  SolutionWriter functions(writer);
  functions.put(solution->last_reader);
  functions.put(solution->last_key);
  return writer.bytes();
}

std::shared_ptr<const PatternSolution> decode_solution(std::string_view bytes) {
  WireReader reader(bytes);
  std::shared_ptr<PatternSolution> solution;
  if (reader.flag("whether there is a solution")) {
    solution = std::make_shared<PatternSolution>();
    solution->is_empty = reader.flag("whether the pattern is empty");
    SolutionReader functions(reader);
    solution->last_reader = functions.function();
    solution->last_key = functions.function();
    if (!solution->last_reader.fits() || !solution->last_key.fits()) WireReader::refuse("a number", "is too large");
  }
  reader.finish();
  return solution;
}

}  // namespace sluice
