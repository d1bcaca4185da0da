#include "scripting/lua/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <lua.hpp>

#include "scripting/base/suggest.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/bridge.h"
#include "scripting/lua/library.h"
#include "scripting/lua/lua_message.h"
#include "scripting/lua/reader.h"
#include "scripting/lua/sandbox.h"
#include "scripting/pattern/text.h"

namespace sluice {

namespace {

// Lua begins its messages with the chunk's name and the line; the user's file name goes there afterwards.
constexpr const char* kChunkName = "=flow";

/// Where the file's result stands: nothing but white space and comments may follow `return`.
int last_line_of(std::string_view source) {
  const size_t end = source.find_last_not_of(" \t\r\n") + 1;
  return 1 + static_cast<int>(std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
}

// The stages are called inside these functions, so that Lua's jumps end in lua_pcall. Stack: 1 the flow, 2 c, 3 q, 4 mass, as
// many as the stage has.
int run_stage(lua_State* state) {
  const int arguments = lua_gettop(state) - 1;
  push_part(state, 1, part_of(static_cast<Stage>(arguments - 1)));
  if (arguments > 1) lua_pushvalue(state, 3);
  lua_pushvalue(state, 2);
  if (arguments > 2) lua_pushvalue(state, 4);
  lua_call(state, arguments, LUA_MULTRET);
  return lua_gettop(state) - arguments - 1;
}

// The same. Stack: 1 the flow, 2 r.
int run_recompute(lua_State* state) {
  push_part(state, 1, FlowPart::kRecompute);
  lua_pushvalue(state, 2);
  lua_call(state, 1, LUA_MULTRET);
  return lua_gettop(state) - 2;
}

int push_handle_protected(lua_State* state) {
  const Handle handle = *static_cast<const Handle*>(lua_touserdata(state, 1));
  push_handle(state, handle);
  return 1;
}

int install(lua_State* state) {
  Session& session = *static_cast<Session*>(lua_touserdata(state, 1));
  install_library(state);
  install_bridge(state, session);
  return 0;
}

/// One script in its sandbox, from source to graph.
class Script {
 public:
  Script(const std::string& file, const TraceOptions& options)
      : session_{GraphBuilder(file, options.head_dim, options.group, options.parameters)},
        heads_(options.heads > 0 ? options.heads : options.group),
        on_stop_(options.on_stop),
        sandbox_({options.seconds, options.memory, options.instructions, [this] { report_stop(); }}),
        state_(sandbox_.state()) {}

  FlowGraph run(std::string_view source) {
    const int flow = load(source);
    const std::shared_ptr<const Recompute> rule = trace_recompute(flow);
    const int mass_rows = session_.own.graph().mass_rows;
    const bool is_dense = session_.own.graph().patterns.dense_prefill;
    std::vector<FlowGraph> programs;
    if (is_own_used(flow)) programs.push_back(run_program(0, flow));
    for (int id = 1; id <= static_cast<int>(session_.variants.size()); ++id) {
      push_variant(state_, session_, id);
      programs.push_back(run_program(id, lua_gettop(state_)));
      lua_pop(state_, 1);
    }
    session_.own.check_field_types(programs);
    check_parameters();
    check_options(programs, mass_rows, is_dense);
    FlowGraph graph = std::move(programs.front());
    graph.recompute = rule;
    graph.variants.assign(std::make_move_iterator(programs.begin() + 1), std::make_move_iterator(programs.end()));
    if (!graph.variants.empty()) verify(graph);
    return graph;
  }

  Inspection inspect(std::string_view source, Stage stage) {
    const int flow = load(source);
    if (!session_.variants.empty()) {
      throw FlowError(session_.variants.front().graph().where, "the flow has several programs, and here is room for one",
                      "take a flow of one of them, without flow.variant");
    }
    session_.own.choose_layers("sparse");
    run_stage_of(flow, Stage::kCache);
    const Datum selected = run_stage_of(flow, Stage::kIndex);
    Inspection seen = describe_returned(selected);
    const bool is_after_alone = line_of_stage(flow, Stage::kIndex) == 0 && line_of_stage(flow, Stage::kAfter) > 0;
    if (is_after_alone) {
      session_.builder().attend_to_all();
    } else {
      session_.builder().attend_to(selected);
    }
    const Datum given = run_stage_of(flow, Stage::kAfter);
    if (stage == Stage::kAfter) seen = describe_returned(given);
    seen.graph = session_.builder().release();
    if (is_after_alone && !seen.graph.eviction) seen.graph.sources.clear();  // it does not say yet what it attends to
    return seen;
  }

 private:
  /// Runs the chunk; the stack index of the flow.
  int load(std::string_view source) {
    check_source(source);
    source = without_mark(source);
    lua_pushcfunction(state_, install);
    lua_pushlightuserdata(state_, &session_);
    call(1, 0);
    const int status = luaL_loadbufferx(state_, source.data(), source.size(), kChunkName, "t");
    if (status == LUA_ERRSYNTAX || status == LUA_ERRRUN) check_nesting(source);
    check(status);
    call(0, 1);
    const int flow = lua_gettop(state_);
    const int end = last_line_of(source);
    check_flow(read_result(flow, end), end);
    check_layers();
    return flow;
  }

  /// All stages of the flow's own program (0), or of a variant, whose value is at stack index `at`.
  FlowGraph run_program(int id, int at) {
    session_.program = id;
    GraphBuilder& builder = session_.builder();
    builder.choose_layers(id == 0 ? "sparse" : builder.graph().variant);
    run_stage_of(at, Stage::kCache);
    const Datum selection = run_stage_of(at, Stage::kIndex);
    check_single("flow.index", line_of_stage(at, Stage::kIndex));
    const int after = line_of_stage(at, Stage::kAfter);
    if (!session_.variants.empty()) builder.leave_out_unused(after > 0);
    if (line_of_stage(at, Stage::kIndex) == 0 && after > 0) builder.attend_to_all();
    check_nothing(run_stage_of(at, Stage::kAfter), after);
    return builder.finish(selection, line_of_stage(at, Stage::kIndex), after);
  }

  /// flow.recompute; null: the flow has none.
  std::shared_ptr<const Recompute> trace_recompute(int flow) {
    const int line = line_of_part(flow, FlowPart::kRecompute);
    if (line == 0) {
      if (!session_.own.recompute_options()) return nullptr;
      throw FlowError(session_.own.declared(), "sluice.flow: recompute is for flows with flow.recompute",
                      "it says by which layer flow.recompute(r) chooses");
    }
    session_.recompute = session_.own.make_recompute(heads_);
    session_.program = Session::kRecompute;
    session_.builder().begin_stage(Stage::kIndex);
    session_.builder().set_line(line);
    const Datum returned = call_part(run_recompute, flow, line, [&] { push_new({Handle::Kind::kCache, Stage::kIndex, 0}); });
    check_single("flow.recompute", line);
    return std::make_shared<const Recompute>(session_.builder().finish_recompute(returned, line));
  }

  void check_parameters() const {
    try {
      session_.own.parameters().check_all_declared();
    } catch (const InputError& error) {
      fail(0, error.what(), error.hint());
    }
  }

  /// What the flow says of stages and patterns is of use to some program. One alone is checked by itself.
  void check_options(const std::vector<FlowGraph>& programs, int mass_rows, bool is_dense) const {
    if (session_.variants.empty()) return;
    const auto any = [&](const auto& holds) { return std::any_of(programs.begin(), programs.end(), holds); };
    const SourceLocation& where = session_.own.declared();
    if (mass_rows != kToEnd && !any([](const FlowGraph& each) { return each.saves_in(Stage::kAfter); })) {
      throw FlowError(where, "sluice.flow: prompt_mass is for flows with flow.after",
                      "it says which rows of a prompt flow.after(q, c, mass) sees the sum of");
    }
    if (is_dense && !any([](const FlowGraph& each) { return !each.patterns.empty(); })) {
      throw FlowError(where, "sluice.flow: prefill = \"dense\" is for flows with flow.pattern",
                      "prompts of all others are dense anyway");
    }
  }

  /// Whether the flow has a program beside its variants: some layer is "sparse".
  bool is_own_used(int flow) const {
    const GraphBuilder::LayerNames& names = session_.own.layer_names();
    const auto is_own = [](const std::string& name) { return name == "sparse"; };
    const bool is_named = is_own(names.rest) || std::any_of(names.layers.begin(), names.layers.end(),
                                                            [&](const auto& each) { return is_own(each.second); });
    const LayerPatterns& patterns = session_.own.graph().patterns;
    if (!is_named && session_.variants.empty() && !patterns.empty())
      fail(patterns.where.line, "flow.pattern: every layer is \"full\", so nothing has it", "layers = { rest = \"sparse\" }");
    if (is_named || session_.variants.empty()) return true;
    for (const Stage stage : {Stage::kCache, Stage::kIndex, Stage::kAfter}) {
      const int line = line_of_stage(flow, stage);
      if (line > 0)
        fail(line, fmt::format("flow.{}: no layer is \"sparse\", so nothing runs it", name_of(stage)),
             "layers names variants alone");
    }
    if (!patterns.empty())
      fail(patterns.where.line, "flow.pattern: no layer is \"sparse\", so nothing has it", "layers names variants alone");
    return false;
  }

  /// `layers` names what there is, and all of it.
  void check_layers() const {
    const GraphBuilder::LayerNames& names = session_.own.layer_names();
    std::vector<std::string> known = {"full", "sparse"};
    for (const GraphBuilder& variant : session_.variants) known.push_back(variant.graph().variant);
    const auto check = [&](const std::string& name) {
      if (std::find(known.begin(), known.end(), name) != known.end()) return;
      const std::string hint = session_.variants.empty() ? "a layer is \"full\" or \"sparse\"" : did_you_mean(name, known);
      throw FlowError(session_.own.graph().where, fmt::format("flow: layers: got the text \"{:.40}\"", name), hint);
    };
    check(names.rest);
    for (const auto& [layer, name] : names.layers) check(name);
    for (const GraphBuilder& variant : session_.variants) {
      const std::string& name = variant.graph().variant;
      const bool is_named = names.rest == name || std::any_of(names.layers.begin(), names.layers.end(),
                                                              [&](const auto& each) { return each.second == name; });
      if (is_named) continue;
      throw FlowError(variant.graph().where, fmt::format("variant \"{:.40}\": no layer has it", name),
                      fmt::format("name it in sluice.flow{{layers = {{rest = \"{:.40}\"}}}}", name));
    }
  }

  Inspection describe_returned(const Datum& returned) {
    Inspection seen;
    switch (returned.kind) {
      case Datum::Kind::kNil:
        break;
      case Datum::Kind::kNumber:
        seen.kind = Inspection::Kind::kNumber;
        seen.number = returned.number;
        break;
      case Datum::Kind::kText:
        seen.kind = Inspection::Kind::kText;
        seen.text = returned.text;
        break;
      default:
        if (find_node(returned, seen)) break;
        seen.kind = Inspection::Kind::kOther;
        seen.text = describe(returned, session_.builder().graph());
        if (const std::optional<HeadPatterns> pattern = pattern_of(returned)) {
          seen.kind = Inspection::Kind::kPattern;
          seen.text += ": " + to_text(*pattern);
        }
    }
    return seen;
  }

  std::optional<HeadPatterns> pattern_of(const Datum& returned) const {
    if (returned.kind != Datum::Kind::kHandle) return std::nullopt;
    const auto joined = session_.builder().joined(returned.handle);
    return joined ? joined->beside : std::nullopt;
  }

  bool find_node(const Datum& returned, Inspection& seen) {
    if (returned.kind != Datum::Kind::kHandle) return false;
    const Handle& handle = returned.handle;
    switch (handle.kind) {
      case Handle::Kind::kTensor:
        if (handle.stage == Stage::kCache) return false;
        seen.kind = Inspection::Kind::kTensor;
        seen.node = handle.id;
        return true;
      case Handle::Kind::kMass:
        seen.kind = Inspection::Kind::kTensor;
        seen.node = session_.builder().emit(Op::kMass, {});
        return true;
      case Handle::Kind::kState:
        seen.kind = Inspection::Kind::kTensor;
        seen.node = session_.builder().load(handle.id);
        return true;
      case Handle::Kind::kSelection:
      case Handle::Kind::kJoined:
        seen.kind = Inspection::Kind::kSelection;
        seen.node = session_.builder().joined(handle)->selection;
        return seen.node != kNoNode;
      default:
        return false;
    }
  }

  FlowError stop_error() const {
    return {{session_.builder().where().file, sandbox_.last_line()},
            sandbox_.stopped_by(),
            "a flow builds a graph once; it needs no long loops and no deep recursion"};
  }

  void report_stop() const {
    if (on_stop_) on_stop_(stop_error());
  }

  [[noreturn]] void fail(int line, const std::string& message, std::string hint = {}) const {
    throw FlowError({session_.builder().where().file, line}, message, std::move(hint));
  }

  void check_source(std::string_view source) const {
    if (source.substr(0, 1) == "\x1b") fail(0, "this is compiled Lua", "give the source text");
    if (source.size() > kLargestSource) {
      fail(0, fmt::format("the file has {} bytes, at most {} are allowed", source.size(), kLargestSource));
    }
  }

  /// Without a byte order mark and a first line for the shell ("#!..."), which Lua, too, takes in files. Lines keep their
  /// numbers.
  static std::string_view without_mark(std::string_view source) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (source.starts_with(kByteOrderMark)) source.remove_prefix(kByteOrderMark.size());
    if (source.starts_with('#')) source.remove_prefix(std::min(source.find('\n'), source.size()));
    return source;
  }

  /// What the file or a stage returned; `line` is where it stands.
  Datum read_result(int index, int line) const {
    try {
      return read_datum(state_, index);
    } catch (const InputError& error) {
      fail(line, fmt::format("what is returned cannot be read: {}", error.what()), error.hint());
    }
  }

  /// `line`: where the file ends.
  void check_flow(const Datum& returned, int line) const {
    if (returned.kind == Datum::Kind::kHandle && returned.handle.kind == Handle::Kind::kFlow) {
      if (returned.handle.id == 0) return;
      fail(line, "the file must return the flow itself and returned a variant", "end the file with: return flow");
    }
    fail(line, fmt::format("the file must return a flow and returned {}", describe(returned, session_.builder().graph())),
         session_.builder().is_declared() ? "end the file with: return flow"
                                          : "local flow = sluice.flow{name = \"mine\"} ... return flow");
  }

  int line_of_stage(int flow, Stage stage) const { return line_of_part(flow, part_of(stage)); }

  /// The line where a part's function begins, or 0 if the flow has none.
  int line_of_part(int flow, FlowPart part) const {
    push_part(state_, flow, part);
    if (lua_type(state_, -1) != LUA_TFUNCTION) {
      lua_pop(state_, 1);
      return 0;
    }
    lua_Debug function;
    lua_getinfo(state_, ">S", &function);
    return std::max(function.linedefined, 1);  // functions of Lua's library have no line
  }

  void push_new(Handle handle) {
    lua_pushcfunction(state_, push_handle_protected);
    lua_pushlightuserdata(state_, &handle);
    call(1, 1);
  }

  /// Calls flow.cache(c), flow.index(q, c) or flow.after(q, c, mass); the first of what it returned.
  Datum run_stage_of(int flow, Stage stage) {
    const int line = line_of_stage(flow, stage);
    if (line == 0) return {};
    GraphBuilder& builder = session_.builder();
    builder.begin_stage(stage);
    builder.set_line(line);
    return call_part(run_stage, flow, line, [&] {
      push_new({Handle::Kind::kCache, stage, 0});
      if (stage != Stage::kCache) push_new(builder.tensor(builder.emit(Op::kQuery, {})));
      if (stage == Stage::kAfter) push_new({Handle::Kind::kMass, stage, 0});
    });
  }

  /// Has `run` call a part of the flow, which begins in `line`, with the flow and what `push` pushes; the first of what it
  /// returned.
  template <typename Push>
  Datum call_part(lua_CFunction run, int flow, int line, Push push) {
    const int before = lua_gettop(state_);
    lua_pushcfunction(state_, run);
    lua_pushvalue(state_, flow);
    push();
    call(lua_gettop(state_) - before - 1, LUA_MULTRET);
    results_ = lua_gettop(state_) - before;
    Datum returned = results_ == 0 ? Datum{} : read_result(before + 1, line);
    try {
      require_own(session_, returned);
    } catch (const InputError& error) {
      fail(line, error.what(), error.hint());
    }
    lua_settop(state_, before);
    return returned;
  }

  /// Of the part that ran last, which begins in `line`; 0: the flow has none.
  void check_single(const char* part, int line) const {
    if (line == 0 || results_ <= 1) return;
    fail(line, fmt::format("{} must return one value and returned {}", part, results_),
         "selections are joined by sluice.union(a, b), patterns by a | b");
  }

  /// What flow.after, which begins in `line`, returned.
  void check_nothing(const Datum& returned, int line) const {
    if (line == 0 || (results_ <= 1 && returned.kind == Datum::Kind::kNil)) return;
    fail(line,
         fmt::format("flow.after must return nothing and returned {}",
                     results_ > 1 ? fmt::format("{} values", results_) : describe(returned, session_.builder().graph())),
         "it keeps values with sluice.save(\"name\", x) or c.NAME:save(x), and says who leaves with sluice.evict(score, {...})");
  }

  void call(int arguments, int results) {
    const int at = lua_gettop(state_) - arguments;  // of the function
    lua_pushcfunction(state_, tell_error);
    lua_insert(state_, at);
    const int status = lua_pcall(state_, arguments, results, at);
    lua_remove(state_, at);
    check(status);
  }

  /// Of a source that Lua does not read.
  void check_nesting(std::string_view source) const {
    const char* const message = lua_tostring(state_, -1);
    if (message == nullptr || std::string_view(message) != "C stack overflow") return;
    fail(most_nested_line(source), "expressions are nested too deeply", "give parts of them names");
  }

  void check(int status) {
    if (status == LUA_OK) return;
    if (sandbox_.stopped_by()) throw stop_error();
    if (session_.failure) throw FlowError(*session_.failure);
    if (status == LUA_ERRMEM) fail(sandbox_.last_line(), "the script uses too much memory");
    size_t length = 0;
    const char* text = lua_tolstring(state_, -1, &length);
    constexpr size_t kLongestMessage = 1000;
    explain(std::string_view(text, std::min(length, kLongestMessage)));
  }

  /// Lua's own message.
  [[noreturn]] void explain(std::string_view message) const {
    const LuaMessage said = read_lua_message(message, kChunkName + 1);
    fail(said.line, said.text, said.hint);
  }

  Session session_;
  int heads_;
  std::function<void(const FlowError&)> on_stop_;
  Sandbox sandbox_;
  lua_State* state_;
  int results_ = 0;  // that the last stage returned
};

void check_geometry(const TraceOptions& options) {
  if (options.heads < 0) throw InputError(fmt::format("flows cannot be traced for {} query heads", options.heads));
  if (options.head_dim < 1 || options.head_dim > GraphLimits::kHeadDim || options.group < 1 ||
      options.group > GraphLimits::kGroup) {
    throw InputError(
        fmt::format("flows cannot be traced for heads of {} channels and groups of {}", options.head_dim, options.group),
        fmt::format("1 to {} channels and groups of 1 to {}", GraphLimits::kHeadDim, GraphLimits::kGroup));
  }
}

}  // namespace

FlowGraph trace(std::string_view source, const std::string& file, const TraceOptions& options) {
  check_geometry(options);
  FlowGraph graph = Script(file, options).run(source);
  if (options.layers > 0) {
    verify_layers(graph, options.layers);
    verify_recompute_layer(graph, options.layers);
  }
  return graph;
}

Inspection inspect(std::string_view source, const std::string& file, const TraceOptions& options, Stage stage) {
  check_geometry(options);
  Inspection seen = Script(file, options).inspect(source, stage);
  verify_unfinished(seen.graph);
  verify_readers(seen.graph);
  if (options.layers > 0) verify_layers(seen.graph, options.layers);
  return seen;
}

FlowGraph trace_file(const std::string& path, const TraceOptions& options) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw InputError(fmt::format("{}: cannot be read", path), "give the path of a flow, a Lua file");
  std::string source;
  // One byte more than a source may have shows that it is too large without reading all of it.
  source.resize(kLargestSource + 1);
  stream.read(source.data(), static_cast<std::streamsize>(source.size()));
  source.resize(static_cast<size_t>(stream.gcount()));
  if (stream.bad() || (source.empty() && !stream.eof())) throw InputError(fmt::format("{}: cannot be read", path));
  return trace(source, path, options);
}

}  // namespace sluice
