#include "kernels/cuda/codegen/fields_writer.h"

namespace sluice::cuda::codegen {

FieldsWriter::FieldsWriter(const FlowLayout& layout, Writer& writer, const Crew& crew)
    : NodeWriter(layout, Stage::kCache, writer, crew) {
  for (const NodeId id : layout_.plan.cache) {
    if (!kept(id)) continue;
    slot(id) = {KernelSlot::Kind::kTile, tile_numbers_};
    tile_numbers_ += elements_per_page(node(id).shape);
    order_.push_back(id);
  }
}

void FieldsWriter::write() {
  for (const NodeId id : order_) compute(id, false);
  for (size_t i = 0; i < graph_.fields.size(); ++i) {
    const Field& field = graph_.fields[i];
    writer_.line("// %{} field ({})", field.node, place_in_script(field.where));
    open_elements(elements_per_page(field.shape), false);
    const Index index = split(writer_, field.shape, "r");
    Values values(scope_, writer_);
    writer_.line("store<{}>({} + {}, r, {});", type_name(field.type), layout_.plan.has_field_pages() ? "field_block" : "block",
                 layout_.plan.fields().field_offsets[i], values.read(field.node, index));
    writer_.close();
  }
}

}  // namespace sluice::cuda::codegen
