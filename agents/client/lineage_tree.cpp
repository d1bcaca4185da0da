#include "agents/client/lineage_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "agents/client/confirmation_text.h"
#include "agents/client/metric_text.h"
#include "agents/client/submission_text.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;

class Tree {
 public:
  explicit Tree(const json& nodes) {
    for (const json& node : nodes) {
      nodes_[JsonObject(node, "a node").integer("id", 1, std::numeric_limits<int64_t>::max())] = node;
    }
    for (const auto& [id, node] : nodes_) {
      const int64_t parent = first_parent(node);
      (parent != 0 ? children_[parent] : roots_).push_back(id);
    }
  }

  std::string text() const {
    std::string text;
    for (const int64_t root : roots_) add(root, text);
    return text;
  }

 private:
  int64_t first_parent(const json& node) const {
    for (const json& parent : member_of(node, "parents")) {
      if (parent.is_number_integer() && nodes_.contains(parent.get<int64_t>())) return parent.get<int64_t>();
    }
    return 0;
  }

  std::string line(int64_t id) const {
    const json& node = nodes_.at(id);
    std::string line = fmt::format("{} {} by {}: {}", id, text_of(node, "name"), text_of(node, "agent"), text_of(node, "status"));
    line += measured_text(node) + confirmation_note(node) + sameness_note(node);
    if (const json& parents = member_of(node, "parents"); parents.size() > 1)
      line += fmt::format(" (parents {})", text_of(node, "parents"));
    return line + "\n";
  }

  static std::string indentation(int depth) {
    constexpr int kDeepest = 20;  // beyond it a terminal has no room, and lines would grow with the lineage
    const std::string spaces(2 * static_cast<size_t>(std::min(depth, kDeepest)), ' ');
    return depth <= kDeepest ? spaces : spaces + fmt::format("[depth {}] ", depth);
  }

  /// Without recursion: lineages are as deep as agents make them.
  void add(int64_t root, std::string& text) const {
    std::vector<std::pair<int64_t, int>> waiting = {{root, 0}};  // with their depths
    while (!waiting.empty()) {
      const auto [id, depth] = waiting.back();
      waiting.pop_back();
      text += indentation(depth) + line(id);
      const auto children = children_.find(id);
      if (children == children_.end()) continue;
      for (auto child = children->second.rbegin(); child != children->second.rend(); ++child) {
        waiting.emplace_back(*child, depth + 1);
      }
    }
  }

  std::map<int64_t, json> nodes_;
  std::map<int64_t, std::vector<int64_t>> children_;
  std::vector<int64_t> roots_;
};

}  // namespace

std::string lineage_tree(const json& nodes) { return Tree(nodes).text(); }

}  // namespace sluice
