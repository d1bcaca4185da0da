#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scripting/graph/graph.h"
#include "scripting/graph/recompute.h"
#include "scripting/lua/parameters.h"
#include "scripting/lua/value.h"

namespace sluice {

/// Grows the graph of one script, operator by operator. Knows nothing of Lua; every error carries the current line.
class GraphBuilder {
 public:
  /// What `layers` says of each, by layer: "full", "sparse" (the flow's own program), or the name of a variant.
  struct LayerNames {
    std::string rest = "sparse";
    std::map<int, std::string> layers = {};
  };

  GraphBuilder(std::string file, int head_dim, int group, ParameterValues values = {});

  /// Those of the script, whatever the program.
  Parameters& parameters() const { return *parameters_; }
  /// The line of the script that is running, for diagnostics and nodes.
  void set_line(int line) { where_.line = line; }
  const SourceLocation& where() const { return where_; }
  /// Of sluice.flow{...}.
  const SourceLocation& declared() const { return declared_; }
  const FlowGraph& graph() const { return graph_; }
  [[noreturn]] void fail(const std::string& message, std::string hint = {}) const;

  /// Once, before any stage, with the geometry that the script asks for.
  void declare(std::string name, int page, DataType kv, LayerNames layers,
               std::vector<std::pair<std::string, DataType>> field_types);
  /// One that begins as this one does, for another program of the flow.
  GraphBuilder make_variant(std::string name) const;
  /// The same for flow.recompute, which sees all query heads of a model.
  GraphBuilder make_recompute(int heads) const;
  bool is_of_copies() const { return graph_.ranks_copies; }
  const LayerNames& layer_names() const { return layer_names_; }
  /// The program is that of the layers which `layers` gives this name.
  void choose_layers(const std::string& name);
  bool is_declared() const { return graph_.where.line > 0; }

  void begin_stage(Stage stage) { stage_ = stage; }
  /// Outside the functions of the flow there is no stage, and no operator.
  std::optional<Stage> stage() const { return stage_; }

  /// Appends an operator in the current stage: checks stage and shapes. `shape` is for fill and reshape.
  NodeId emit(Op op, std::vector<NodeId> inputs, Attributes attributes = {}, Shape shape = {});
  NodeId constant(double value);
  const Shape& shape_of(NodeId id) const { return graph_.nodes[static_cast<size_t>(id)].shape; }
  Handle tensor(NodeId id) const { return {Handle::Kind::kTensor, *stage_, id}; }

  /// c.NAME and c.NAME = value, in any stage.
  Handle read_member(const std::string& name);
  void assign_member(const std::string& name, const Datum& value);

  /// A pattern that the script can name.
  Handle add_pattern(const HeadPatterns& pattern);
  const HeadPatterns& pattern(int32_t id) const { return (*patterns_)[static_cast<size_t>(id)]; }
  /// The patterns are those of decode steps alone.
  void prefill_densely() { graph_.patterns.dense_prefill = true; }
  /// What a prompt's rows give to its tokens is summed over so many of them, the last; kToEnd: all, 0: none.
  void sum_masses_over(int rows) { graph_.mass_rows = rows; }
  /// What sluice.flow{recompute = {...}} says; none: nothing.
  struct RecomputeOptions {
    int layer = 1;
    int rows = kToEnd;
  };
  void set_recompute_options(std::optional<RecomputeOptions> options) { recompute_options_ = options; }
  const std::optional<RecomputeOptions>& recompute_options() const { return recompute_options_; }
  /// Of a program beside others what the flow says of stages and patterns that it has not got does not count.
  void leave_out_unused(bool has_after);
  /// flow.pattern = value: a pattern, or a table of patterns by layer.
  void assign_pattern(const Datum& value);

  /// What attention runs over beside the tokens of a selection: the other pages, each through a key and a value (cover).
  struct Cover {
    std::string keys;  // fields or states
    std::string values;
    NodeId bias = kNoNode;
    NodeId tail =
        kNoNode;  // a selection: newest pages, which are no part of the cover. Those that it opens are selected, as the tail is.
    bool preserves = true;    // the weights of pages, where their tokens are attended to
    int group_pages = 1;      // that have one summary together while none is open
    NodeId opened = kNoNode;  // a selection: groups with a page of it are open
  };
  /// What flow.index may return: the pages of a selection, tokens that a pattern has, both together, or a selection that opens
  /// pages of a cover.
  struct Joined {
    NodeId selection = kNoNode;
    std::optional<HeadPatterns> beside = {};
    std::optional<Cover> cover = {};
  };
  Handle add_joined(const Joined& joined);
  /// Of a selection, a pattern, or both together; nothing of others.
  std::optional<Joined> joined(const Handle& handle) const;

  /// cfill: a state that c.NAME = ... will name.
  Handle declare_fill(double value, Shape shape);
  /// Index of the state, declaring it if `shape` is given and it is new. Fails if it is unknown or differs.
  int32_t state(const std::string& name, const std::optional<Shape>& shape, std::optional<double> initial);
  NodeId load(int32_t state);
  /// Who leaves, by `score`: once, in the after stage. Names the score's state itself.
  void evict(NodeId score, Eviction eviction);
  /// The flow attends to all pages, as one without flow.index does whose flow.after says who leaves.
  void attend_to_all();
  /// `last` > 0: pages are saved one by one, when they leave the tail of so many.
  void save(int32_t state, NodeId value, int last = 0);

  /// Makes what flow.index returned all that is attended to, if it is a selection; whether it is.
  bool attend_to(const Datum& returned);
  /// Ends the trace with what flow.index returned: sets the selection, checks what only the whole can show.
  /// `index_line` and `after_line` are where flow.index and flow.after begin, or 0 if the flow has none.
  FlowGraph finish(const Datum& returned, int index_line, int after_line);
  /// The same of what flow.recompute returned, which begins in `line`.
  Recompute finish_recompute(const Datum& returned, int line);
  /// Fields that the flow gives a type, and that none of `programs` assigns, are refused.
  void check_field_types(const std::vector<FlowGraph>& programs) const;
  /// Ends it as it is, without those checks.
  FlowGraph release() { return std::move(graph_); }

 private:
  struct Declaration {
    double value = 0;
    Shape shape;
  };

  /// Decode steps see the tokens of `pattern` and nothing else, as flow.index returned it; prompts are dense.
  void decode_under(const HeadPatterns& pattern);
  int read_layer_pattern(const Datum& value);
  Handle read_cache_member(const std::string& name);
  /// r.NAME of flow.recompute.
  Handle read_copy_fact(const std::string& name);
  /// In the stages that see all pages.
  Handle read_paged_member(const std::string& name);
  void add_state(const std::string& name, Shape shape, double initial);
  int32_t find_state(const std::string& name) const;
  DataType type_of_field(const std::string& name) const;
  std::vector<std::string> member_names() const;
  void check_after(int index_line, int line) const;
  void check_states() const;

  SourceLocation where_;
  SourceLocation declared_;  // sluice.flow{...}
  std::optional<Stage> stage_;
  FlowGraph graph_;
  std::vector<Declaration> declarations_;
  std::vector<std::pair<std::string, DataType>> field_types_;
  std::shared_ptr<std::vector<HeadPatterns>> patterns_;  // of all programs
  std::shared_ptr<Parameters> parameters_;               // the same
  LayerNames layer_names_;
  std::optional<RecomputeOptions> recompute_options_;
  int heads_ = 0;  // query heads of the model, which flow.recompute sees
  std::vector<Joined> joined_;
};

}  // namespace sluice
