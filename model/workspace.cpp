#include "model/workspace.h"

#include <algorithm>

namespace mneme::model {

Workspace::Workspace(const LoadedModel& model, int batch_max) {
  const kernels::LinearShape& linear = model.layout().linear;
  const kernels::AttentionShape& attention = model.layout().attention;
  const auto rows = [](int width) {
    return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(kRowsMax) *
                                                   static_cast<size_t>(width));
  };
  x = rows(model.layout().hidden);
  projected = rows(std::max(linear.projected_width(), attention.projected_width()));
  q = rows(linear.key_width());
  k = rows(linear.key_width());
  v = rows(linear.value_width());
  write_strength = rows(linear.value_heads);
  log_decay = rows(linear.value_heads);
  mixed = rows(std::max(linear.value_width(), attention.query_heads * attention.head_dim));
  share = rows(linear.key_heads * linear.pages_max);
  logits = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(batch_max) *
                                                   static_cast<size_t>(model.config().vocab));

  const auto lists = static_cast<size_t>(kRowsMax) * static_cast<size_t>(linear.key_heads);
  const size_t entries = lists * static_cast<size_t>(linear.pages_max);
  list_chunk.resize(entries);
  list_gate.resize(entries);
  list_group.resize(entries);
  list_count.resize(lists);
  list = {.chunk = list_chunk.data(),
          .gate = list_gate.data(),
          .group = list_group.data(),
          .count = list_count.data()};

  token.resize(kRowsMax);
  position.resize(kRowsMax);
  session.resize(kRowsMax);
}

}  // namespace mneme::model
