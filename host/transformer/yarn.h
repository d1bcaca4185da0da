#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice {

/// YaRN (Peng et al. 2023), as transformers has it: channels that turn often over the original context stay, those that turn
/// seldom are slowed down by `factor`, and a ramp joins the two.
class Yarn {
 public:
  struct Options {
    double theta = 10000;  // above 1
    int head_dim = 64;
    double factor = 1;    // at least 1
    int original = 2048;  // tokens of the context that the model was trained for
    double beta_fast = 32;
    double beta_slow = 1;
    bool whole = true;  // the ramp begins and ends at whole channels
  };
  explicit Yarn(const Options& options) : factor_(options.factor) {
    // The channel, of head_dim / 2, that turns so often over the original context.
    const auto channel = [&](double turns) {
      return options.head_dim * std::log(options.original / (turns * 2 * std::numbers::pi)) / (2 * std::log(options.theta));
    };
    const double first = channel(options.beta_fast);
    const double last = channel(options.beta_slow);
    first_ = std::max(options.whole ? std::floor(first) : first, 0.0);
    last_ = std::min(options.whole ? std::ceil(last) : last, options.head_dim - 1.0);
    if (first_ == last_) last_ += 0.001;
  }

  /// Of what `channel` of head_dim / 2 turns by.
  double frequency(double plain, int channel) const {
    const double ramp = std::clamp((channel - first_) / (last_ - first_), 0.0, 1.0);
    return plain / factor_ * ramp + plain * (1 - ramp);
  }
  /// What cosines and sines are multiplied by, where a model says nothing else: by 1, or more where it says `mscale`.
  static double attention_scale(double factor, double mscale = 1) {
    return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
  }

 private:
  double factor_;
  double first_ = 0;  // channel; the ramp is between the two
  double last_ = 0;
};

}  // namespace sluice
