#include "host/text/jinja/loop.h"

#include <algorithm>

#include "host/text/jinja/operations.h"
#include "host/text/jinja/run.h"

namespace sluice::jinja {
namespace {

class LoopCycle final : public Object {
 public:
  explicit LoopCycle(const Loop& loop) : loop_(loop) {}
  std::string_view type() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Run& run, const Arguments& arguments) override {
    if (arguments.values.empty()) run.fail("loop.cycle has nothing to go through");
    return arguments.values[loop_.index() % arguments.values.size()];
  }

 private:
  const Loop& loop_;
};

class LoopChanged final : public Object {
 public:
  explicit LoopChanged(Loop& loop) : loop_(loop) {}
  std::string_view type() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Run& run, const Arguments& arguments) override { return loop_.changed(run, arguments); }

 private:
  Loop& loop_;
};

}  // namespace

bool Loop::changed(Run& run, const Arguments& arguments) {
  const bool same = was_asked_ && std::equal(last_.begin(), last_.end(), arguments.values.begin(), arguments.values.end(),
                                             [&](const Value& a, const Value& b) { return equal(run, a, b); });
  was_asked_ = true;
  last_ = arguments.values;
  return !same;
}

Value Loop::attribute(Run& run, std::string_view name) {
  const auto index = static_cast<int64_t>(index_);
  const auto count = static_cast<int64_t>(items_.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return count - index;
  if (name == "revindex0") return count - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == count;
  if (name == "length") return count;
  if (name == "depth") return int64_t{1};  // of recursion, which there is none of
  if (name == "depth0") return int64_t{0};
  if (name == "previtem") return index == 0 ? Value(Undefined{"loop.previtem"}) : items_[index_ - 1];
  if (name == "nextitem") return index + 1 == count ? Value(Undefined{"loop.nextitem"}) : items_[index_ + 1];
  if (name == "cycle") return &run.make<LoopCycle>(*this);
  if (name == "changed") return &run.make<LoopChanged>(*this);
  return Undefined{name};
}

}  // namespace sluice::jinja
