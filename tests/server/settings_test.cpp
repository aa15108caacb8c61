// The table of settings against config.proto, whose fields it describes one by one, and against the
// table that docs/operating.md prints.
#include "server/settings.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "proto/mneme/v1/config.pb.h"

namespace mneme::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

struct Field {
  std::string path;
  bool text = false;
  bool bytes = false;
};

void AddFields(const Descriptor& type, const std::string& prefix, std::vector<Field>& fields) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.message_type() != nullptr) {
      AddFields(*field.message_type(), prefix + field.name() + ".", fields);
    } else {
      fields.push_back({.path = prefix + field.name(),
                        .text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING,
                        .bytes = field.name().find("_bytes") != std::string::npos});
    }
  }
}

TEST(SettingsTest, HasOneRowForEveryFieldInTheOrderOfTheProtoFile) {
  std::vector<Field> fields;
  AddFields(*v1::ServerConfig::descriptor(), "", fields);
  ASSERT_EQ(Settings().size(), fields.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    const Setting& setting = Settings()[i];
    EXPECT_EQ(setting.path, fields[i].path);
    EXPECT_EQ(IsText(setting), fields[i].text) << setting.path;
    EXPECT_EQ(setting.unit == "bytes", fields[i].bytes) << setting.path;
    EXPECT_FALSE(setting.unit.empty() || setting.description.empty()) << setting.path;
    EXPECT_TRUE(fields[i].text || !setting.standard.empty()) << setting.path;
  }
}

TEST(SettingsTest, IsTheTableThatTheOperatorReads) {
  std::ifstream file(std::string(MNEME_SOURCE_DIR) + "/docs/operating.md");
  std::vector<std::string> rows;
  bool in_table = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| setting |")) in_table = true;
    if (in_table && line.starts_with("| `")) rows.push_back(line);
    if (line.empty()) in_table = false;
  }
  ASSERT_EQ(rows.size(), Settings().size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Setting& setting = Settings()[i];
    EXPECT_EQ(rows[i], fmt::format("| `{}` | {} | {} | {} |", setting.path, setting.standard,
                                   setting.unit, WhatItDoes(setting)));
  }
}

TEST(SettingsTest, SaysWhatMayStandThere) {
  const auto allowed = [](std::string_view path) -> std::string {
    for (const Setting& setting : Settings())
      if (setting.path == path) return AllowedValues(setting);
    return "no such setting";
  };
  EXPECT_EQ(allowed("reader"), "hla, mhla, native, or empty for the model's own");
  EXPECT_EQ(allowed("memory.page_dtype"), "f16, f32");
  EXPECT_EQ(allowed("listen.port"), "1 to 65535");
  EXPECT_EQ(allowed("limits.drain_ms"), "");
}

}  // namespace
}  // namespace mneme::server
