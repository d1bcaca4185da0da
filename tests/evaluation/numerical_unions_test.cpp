#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "agents/evaluation/numerical.h"
#include "scripting/base/error.h"
#include "scripting/lua/trace.h"

namespace sluice::test {
namespace {

/// Scripts of unions: parts of every kind, ranked by scores that float32 tells apart, that it cannot, and by all that it does at
/// its ends. SLUICE_UNIONS is their number.
int scripts_to_try() {
  const char* asked = std::getenv("SLUICE_UNIONS");
  return asked == nullptr ? 60 : std::stoi(asked);
}

class Script {
 public:
  explicit Script(uint64_t seed) : random_(seed) {}

  std::string text() {
    const std::string header = fmt::format("local f = sluice.flow {{ name = 'f', page = {}, kv = '{}' }}\n",
                                           one_of({8, 8, 16, 32}), one_of({"f32", "bf16"}));
    const int scores = number(1, 4);
    for (int i = 0; i < scores; ++i) add_line(fmt::format("local s{} = {}", i, score(i)));
    std::vector<std::string> parts;
    const int count = number(1, 6);
    for (int i = 0; i < count; ++i) {
      // Some stand twice: as the same selection, or as another that says the same.
      const bool again = !parts.empty() && chance(20);
      const std::string wanted = again ? parts[number(0, i - 1)] : part(fmt::format("s{}", number(0, scores - 1)));
      parts.push_back(again && chance(50) ? wanted : name_of(wanted));
    }
    const std::string result = count == 1 ? parts[0] : fmt::format("sluice.union({})", fmt::join(parts, ", "));
    return header + "function f.cache(c)\n  c.m = c.k:mean('token')\n  c.hi = c.k:max('token')\n  c.lo = c.k:min('token')\n" +
           states_ + "end\nfunction f.index(q, c)\n" + lines_ + "  return " + result + "\nend\nreturn f\n";
  }

 private:
  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int percent) { return number(1, 100) <= percent; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[number(0, static_cast<int>(values.size()) - 1)];
  }

  void add_line(const std::string& line) { lines_ += "  " + line + "\n"; }

  std::string name_of(const std::string& selection) {
    if (selection.starts_with("p")) return selection;
    const std::string name = fmt::format("p{}", names_++);
    add_line(fmt::format("local {} = {}", name, selection));
    return name;
  }

  std::string sharp() {
    return one_of<const char*>({"(q * c.m):sum('dim'):max('head')", "(q * c.m):sum('dim'):mean('head')",
                                "(q * c.hi):maximum(q * c.lo):sum('dim'):max('head')", "q:mean('head'):dot(c.m)",
                                "(q:dot(c.m) * 0.125):softmax('page'):sum('head')"});
  }

  /// The i-th score; those before it may be part of it.
  std::string score(int i) {
    const std::string x = i > 0 && chance(40) ? fmt::format("s{}", number(0, i - 1)) : "(" + sharp() + ")";
    switch (number(0, 19)) {
      case 0:
        return "1 + " + x + " * 1e-8";
      case 1:
        return "1000 + " + x + " * 1e-5";
      case 2:
        return "sluice.fill(0.5, { 'page' })";
      case 3:
        return "sluice.random()";
      case 4:
        return "-" + x;
      case 5:
        return x + " * 1e30";
      case 6:
        return x + " * 1e-30";
      case 7:
        return x + " * 1e30 * 1e30";  // infinite in float32
      case 8:
        return x + " * 1e-30 * 1e-12";  // subnormal
      case 9:
        return "sluice.log(sluice.relu(" + x + "))";
      case 10:
        return "1 / sluice.relu(" + x + ")";
      case 11:
        return "sluice.log(" + x + ")";  // NaN below zero
      case 12:
        return one_of<const char*>({"sluice.position()", "-sluice.position()", "sluice.position() * 0"});
      case 13: {
        const std::string state = fmt::format("c.state{}", i);
        states_ += fmt::format("  {} = sluice.cfill({})\n", state, one_of<const char*>({"0", "1", "-1e30"}));
        add_line(fmt::format("local x{} = 0.5 * {} + {}", i, state, x));
        add_line(fmt::format("{}:save(x{})", state, i));
        return fmt::format("x{}", i);
      }
      case 14:
        return x + ":softmax('page')";
      case 15:
        return fmt::format("sluice.where_gt({0}, 0, {0}, 0)", x);
      case 16:
        return fmt::format("{0} + sluice.random() * {1}", x, one_of<const char*>({"1e-6", "1", "1e6"}));
      case 17:
        return "sluice.conv1d(" + x + ", { 0.25, 0.5, 0.25 })";
      default:
        return sharp();
    }
  }

  /// `first`, `last` and what else of a selection's options.
  std::string ends() { return fmt::format("first = {}, last = {}", number(0, 3), number(0, 3)); }

  std::string budget() {
    if (chance(50)) return fmt::format("k = {}, {}", number(1, 30), ends());
    return fmt::format("ratio = {}, {}", one_of<const char*>({"1 / 8", "0.3", "1 / 3", "0.01", "1"}), ends());
  }

  std::string part(const std::string& score) {
    switch (number(0, 9)) {
      case 0:
      case 1:
        return fmt::format("sluice.approx_topk({}, {{ {}, tolerate = {} }})", score, budget(),
                           one_of<const char*>({"0", "0.05", "0.1", "0.5", "0.95"}));
      case 2:
      case 3: {
        const std::string mean = score + ":mean('page')";
        const std::string above = one_of<std::string>({"0", "0.5", "-1", "1e-20", mean, mean + " * 1.5", score + ":max('page')"});
        const std::string most = chance(50) ? fmt::format(", max = {}", number(6, 30)) : "";
        // It must select something: the newest page where nothing is said of the ends.
        const std::string kept = chance(30) ? "" : fmt::format(", first = {}, last = {}", number(0, 3), number(1, 3));
        return fmt::format("sluice.threshold({}, {{ above = {}{}{} }})", score, above, kept, most);
      }
      case 4:
        return fmt::format("sluice.window {{ first = {}, last = {} }}", number(0, 4), number(1, 4));
      default:
        return fmt::format("sluice.topk({}, {{ {}, method = '{}' }})", score, budget(),
                           one_of<const char*>({"auto", "radix", "gvr"}));
    }
  }

  std::mt19937_64 random_;
  std::string states_;
  std::string lines_;
  int names_ = 0;
};

TEST(CheckAgainstReference, RefusesNoUnionThatIsRight) {
  const auto device = create_cpu_device({1});
  for (int seed = 0; seed < scripts_to_try(); ++seed) {
    const std::string script = Script(seed).text();
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, script));
    try {
      const FlowGraph traced = trace(script, "f.lua", {.head_dim = seed % 2 == 0 ? 64 : 16, .group = 1 + seed % 8});
      EXPECT_EQ(check_against_reference(*device, traced, compile(traced).plan), std::nullopt);
    } catch (const FlowError& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace
}  // namespace sluice::test
