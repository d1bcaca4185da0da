#include "sandbox/wire/messages.h"

#include <algorithm>
#include <utility>

#include "sandbox/wire/graph_wire.h"
#include "sandbox/wire/pattern_wire.h"
#include "sandbox/wire/wire.h"

namespace sluice {

namespace {

constexpr uint32_t kMagic = 0x534c4753;  // "SGLS"
constexpr uint16_t kVersion = 3;
constexpr size_t kLongestText = size_t{16} << 10;
constexpr size_t kLongestProblem = 256;
constexpr int32_t kLastInteger = INT32_MAX;

enum class RequestKind : uint8_t { kTrace, kSolve };
enum class AnswerKind : uint8_t { kGraph, kDiagnostic };

void put_version(WireWriter& writer) {
  writer.number(kMagic);
  writer.number(kVersion);
}

void check_version(WireReader& reader) {
  if (reader.number<uint32_t>("its beginning") != kMagic) WireReader::refuse("its beginning", "is none of ours");
  if (reader.number<uint16_t>("its version") != kVersion) WireReader::refuse("its version", "is not this program's");
}

Diagnostic read_diagnostic(WireReader& reader) {
  Diagnostic diagnostic;
  diagnostic.kind = reader.one_of("the kind of error", Diagnostic::Kind::kInternal);
  diagnostic.line = reader.integer("the line", 0, kLastInteger);
  diagnostic.message = reader.text("the message", kLongestText);
  diagnostic.hint = reader.text("the hint", kLongestText);
  reader.finish();
  return diagnostic;
}

void put(WireWriter& writer, const TraceRequest& request) {
  writer.number(request.options.head_dim);
  writer.number(request.options.group);
  writer.number(request.options.layers);
  writer.number(request.options.heads);
  writer.number(request.options.seconds);
  writer.number(uint64_t{request.options.memory});
  writer.number(request.options.instructions);
  writer.number(static_cast<uint32_t>(request.options.parameters.size()));
  for (const auto& [name, value] : request.options.parameters) {
    writer.text(name);
    writer.text(value);
  }
  writer.text(request.source);
}

TraceRequest take_trace(WireReader& reader) {
  TraceRequest request;
  request.options.head_dim = reader.number<int>("the head's size");
  request.options.group = reader.number<int>("the group");
  request.options.layers = reader.number<int>("the number of layers");
  request.options.heads = reader.number<int>("the number of query heads");
  request.options.seconds = reader.real("the time limit");
  request.options.memory = reader.number<uint64_t>("the memory limit");
  request.options.instructions = reader.number<int64_t>("the limit of instructions");
  const auto parameters = reader.number<uint32_t>("the number of parameters");
  if (parameters > ParameterLimits::kNumber) WireReader::refuse("the number of parameters", "is too large");
  for (uint32_t i = 0; i < parameters; ++i) {
    std::string name = reader.text("the name of a parameter", ParameterLimits::kNameLength);
    request.options.parameters[std::move(name)] = reader.text("the value of a parameter", ParameterLimits::kTextLength);
  }
  request.source = reader.text("the source", kLargestSource + 1);
  return request;
}

}  // namespace

std::string encode(const ChildRequest& request) {
  WireWriter writer;
  put_version(writer);
  if (const auto* trace = std::get_if<TraceRequest>(&request)) {
    writer.number(RequestKind::kTrace);
    put(writer, *trace);
  } else {
    const auto& [patterns, operations] = std::get<SolveRequest>(request);
    writer.number(RequestKind::kSolve);
    writer.number(static_cast<uint32_t>(patterns.size()));
    for (const Pattern& each : patterns) put_pattern(writer, each);
    writer.number(operations);
  }
  return writer.bytes();
}

ChildRequest decode_request(std::string_view bytes) {
  WireReader reader(bytes);
  check_version(reader);
  auto request = [&]() -> ChildRequest {
    if (reader.one_of("the kind of request", RequestKind::kSolve) == RequestKind::kTrace) return take_trace(reader);
    SolveRequest solve;
    const size_t count = reader.count("patterns", SolveRequest::kMostPatterns);
    for (size_t i = 0; i < count; ++i) solve.patterns.push_back(take_pattern(reader));
    solve.operations = reader.number<uint64_t>("the limit of operations");
    return solve;
  }();
  reader.finish();
  return request;
}

std::string encode(const Greeting& greeting) {
  WireWriter writer;
  put_version(writer);
  writer.number(greeting.layers.seccomp);
  writer.number(greeting.layers.landlock);
  writer.text(std::string_view(greeting.problem).substr(0, kLongestProblem));
  return writer.bytes();
}

Greeting take_greeting(std::string_view& bytes) {
  WireReader reader(bytes);
  check_version(reader);
  Greeting greeting;
  greeting.layers.seccomp = reader.flag("seccomp");
  greeting.layers.landlock = reader.integer("Landlock", 0, kLastInteger);
  greeting.problem = reader.text("the problem", kLongestProblem);
  bytes = reader.rest();
  return greeting;
}

std::string encode(const TraceAnswer& answer) {
  WireWriter writer;
  if (const auto* graph = std::get_if<FlowGraph>(&answer)) {
    writer.number(AnswerKind::kGraph);
    return writer.bytes() + encode_graph(*graph);
  }
  const Diagnostic& diagnostic = std::get<Diagnostic>(answer);
  writer.number(AnswerKind::kDiagnostic);
  writer.number(diagnostic.kind);
  writer.number(std::max(diagnostic.line, 0));
  writer.text(std::string_view(diagnostic.message).substr(0, kLongestText));
  writer.text(std::string_view(diagnostic.hint).substr(0, kLongestText));
  return writer.bytes();
}

TraceAnswer decode_answer(std::string_view bytes, const std::string& file) {
  WireReader reader(bytes);
  if (reader.one_of("the kind of answer", AnswerKind::kDiagnostic) == AnswerKind::kDiagnostic) return read_diagnostic(reader);
  return decode_graph(reader.rest(), file);
}

}  // namespace sluice
