#include "scripting/pattern/solution.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "scripting/base/error.h"
#include "scripting/pattern/integer_relation.h"

namespace sluice {
namespace {

/// Builds the relation { query -> key } of an expression, over the quarter plane.
class Relation {
 public:
  Relation(const IntegerContext& context, const Pattern& pattern) : context_(context), pattern_(pattern) {}

  /// Of the whole, up to the diagonal and below the length n.
  IslMap whole() const {
    const IslMap causal = context_.read_map("[n] -> { [i] -> [j] : 0 <= j <= i < n }");
    return intersect(of(static_cast<int>(pattern_.nodes().size()) - 1), causal);
  }

 private:
  IslMap of(int place) const {
    const Pattern::Node& node = pattern_.nodes()[static_cast<size_t>(place)];
    switch (node.kind) {
      case Pattern::Kind::kRect:
        return context_.read_map(fmt::format(
            "{{ [i] -> [j] : {} and {} }}", side("i", node.rect.row, node.rect.rows, node.rect.row_stride, node.rect.row_offset),
            side("j", node.rect.column, node.rect.columns, node.rect.column_stride, node.rect.column_offset)));
      case Pattern::Kind::kDiag:
        return context_.read_map(
            fmt::format("{{ [i] -> [j] : i >= 0 and j >= 0 and {} }}",
                        side(fmt::format("(i - j - ({}))", node.diag.offset), 0, node.diag.size, node.diag.stride, 0)));
      case Pattern::Kind::kAnd:
        return intersect(of(node.left), of(node.right));
      case Pattern::Kind::kOr: {
        IslMap left = of(node.left);
        IslMap right = of(node.right);
        return coalesced(isl_map_union(left.release(), right.release()));
      }
      case Pattern::Kind::kNot: {
        IslMap all = context_.read_map("{ [i] -> [j] : i >= 0 and j >= 0 }");
        IslMap one = of(node.left);
        return coalesced(isl_map_subtract(all.release(), one.release()));
      }
      case Pattern::Kind::kSpread:
        return spread(pattern_.nodes()[static_cast<size_t>(node.left)].rect, of(node.right));
    }
    throw InternalError("a pattern with a part of an unknown kind");
  }

  /// { [i] -> [j] : block(i mod rows, j mod columns) and inner(i / rows, j / columns) }.
  IslMap spread(const PatternRect& block, IslMap inner) const {
    const auto blow_up = [&](int size) {
      return context_.read_map(fmt::format("{{ [b] -> [x] : {0} * b <= x < {0} * b + {0} }}", size));
    };
    IslMap rows = blow_up(block.rows);
    IslMap columns = blow_up(block.columns);
    IslMap map(isl_map_apply_domain(inner.release(), rows.release()));
    map = context_.require(IslMap(isl_map_apply_range(context_.require(std::move(map)).release(), columns.release())));
    if (block.row_stride == 1 && block.column_stride == 1) return map;
    const auto within = [](const char* name, int size, int stride, int offset) {
      return fmt::format("({} mod {} - {}) mod {} = 0", name, size, offset, stride);
    };
    return intersect(
        std::move(map),
        context_.read_map(fmt::format("{{ [i] -> [j] : {} and {} }}", within("i", block.rows, block.row_stride, block.row_offset),
                                      within("j", block.columns, block.column_stride, block.column_offset))));
  }

  static std::string side(const std::string& name, int first, int size, int stride, int offset) {
    std::string text = fmt::format("{} >= {}", name, first);
    if (size != kUnbounded) text += fmt::format(" and {} < {}", name, int64_t{first} + size);
    if (stride > 1) text += fmt::format(" and ({} - {}) mod {} = 0", name, int64_t{first} + offset, stride);
    return text;
  }

  IslMap intersect(IslMap left, const IslMap& right) const {
    return context_.require(IslMap(isl_map_intersect(left.release(), isl_map_copy(right.get()))));
  }
  /// The same with fewer parts, where the library finds some. Its coalescing may take in what is not there (isl 0.25: the first
  /// two columns and every second one become all of them), so what it says is looked at.
  IslMap coalesced(isl_map* map) const {
    IslMap whole = context_.require(IslMap(map));
    IslMap fewer = context_.require(IslMap(isl_map_coalesce(isl_map_copy(whole.get()))));
    return context_.require(isl_map_is_equal(whole.get(), fewer.get())) ? std::move(fewer) : std::move(whole);
  }

  const IntegerContext& context_;
  const Pattern& pattern_;
};

std::atomic<PatternSolver> chosen_solver = solve_all;

}  // namespace

std::shared_ptr<const PatternSolution> solve(const Pattern& pattern, unsigned long operations) {
  try {
    const IntegerContext context(operations);
    IslMap keys = Relation(context, pattern).whole();
    auto solution = std::make_shared<PatternSolution>();
    solution->is_empty = context.require(isl_map_is_empty(keys.get()));
    solution->last_key = QuasiAffineFunction::largest(context, keys);
    IslMap readers = context.require(IslMap(isl_map_reverse(keys.release())));
    solution->last_reader = QuasiAffineFunction::largest(context, readers);
    if (!solution->last_key.fits() || !solution->last_reader.fits()) return nullptr;
    return solution;
  } catch (const InputError&) {
    return nullptr;
  }
}

Solutions solve_all(std::span<const Pattern> patterns, unsigned long operations) {
  Solutions solutions;
  for (const Pattern& each : patterns) solutions.push_back(solve(each, operations));
  return solutions;
}

void set_pattern_solver(PatternSolver solver) { chosen_solver = solver; }

PatternSolver pattern_solver() { return chosen_solver; }

}  // namespace sluice
