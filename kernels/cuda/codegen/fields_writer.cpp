#include "kernels/cuda/codegen/fields_writer.h"

#include <algorithm>

namespace sluice::cuda::codegen {

FieldsWriter::FieldsWriter(const FlowLayout& layout, Writer& writer, const Crew& crew, int threads)
    : NodeWriter(layout, Stage::kCache, writer, crew), threads_(threads) {
  for (const NodeId id : layout_.plan.cache) {
    if (!kept(id)) continue;
    slot(id) = {KernelSlot::Kind::kTile, tile_numbers_};
    tile_numbers_ += elements_per_page(node(id).shape);
    order_.push_back(id);
  }
}

void FieldsWriter::write() {
  write("", [](size_t) { return std::string(); });
}

void FieldsWriter::write(std::string_view condition, const std::function<std::string(size_t field)>& place) {
  unpublished_.assign(graph_.nodes.size(), false);
  for (const NodeId id : order_) {
    if (reads_unpublished(id)) publish();
    take_threads(elements_per_page(node(id).shape));
    compute_unpublished(id, false);
    unpublished_[static_cast<size_t>(id)] = true;
  }
  publish();
  for (size_t i = 0; i < graph_.fields.size(); ++i) {
    const Field& field = graph_.fields[i];
    writer_.line("// %{} field ({})", field.node, place_in_script(field.where));
    take_threads(elements_per_page(field.shape));
    open_elements(elements_per_page(field.shape), false);
    const Index index = split(writer_, field.shape, "r");
    Values values(scope_, writer_);
    writer_.line("const float x = {};", values.read(field.node, index));
    writer_.line("store<{}>({} + {}, r, x);", type_name(field.type), layout_.plan.has_field_pages() ? "field_block" : "block",
                 layout_.plan.fields().field_offsets[i]);
    if (const std::string other = place(i); !other.empty())
      writer_.line("if ({}) store<{}>({}, r, x);", condition, type_name(field.type), other);
    writer_.close();
  }
}

bool FieldsWriter::reads_unpublished(NodeId id) const {
  const std::vector<NodeId>& inputs = node(id).inputs;
  return std::any_of(inputs.begin(), inputs.end(), [&](NodeId input) {
    return unpublished_[static_cast<size_t>(input)] || (!kept(input) && reads_unpublished(input));
  });
}

void FieldsWriter::take_threads(int64_t count) {
  if (threads_ == 0) return;
  thread_ = busy_threads_ == 0 ? kFieldWarps.thread
                               : fmt::format("({} + {}) % {}", kFieldWarps.thread, threads_ - busy_threads_, threads_);
  crew_.thread = thread_.c_str();
  busy_threads_ = (busy_threads_ + count) % threads_;
}

void FieldsWriter::publish() {
  if (std::find(unpublished_.begin(), unpublished_.end(), true) == unpublished_.end()) return;
  writer_.write(crew_.barrier);
  unpublished_.assign(graph_.nodes.size(), false);
  busy_threads_ = 0;
}

}  // namespace sluice::cuda::codegen
