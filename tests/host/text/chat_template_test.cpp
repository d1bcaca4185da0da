#include "host/text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>

#include "scripting/base/error.h"
#include "tests/host/transformer/tiny_model.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

const Json kQuestion = Json::array({{{"role", "user"}, {"content", "What is the capital of France?"}}});

class LoadChatTemplate : public ::testing::Test {
 protected:
  std::unique_ptr<ChatTemplate> load() const { return load_chat_template(directory_.path()); }
  void write(const std::string& name, const std::string& text) const { testing::write_text(directory_.file(name), text); }
  std::string refusal() const {
    try {
      load();
      return {};
    } catch (const InputError& error) {
      return error.what();
    }
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(LoadChatTemplate, ThereNeedBeNone) {
  EXPECT_EQ(load(), nullptr);
  write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": null})");
  EXPECT_EQ(load(), nullptr);
}

TEST_F(LoadChatTemplate, ReadsTheTokenizersConfiguration) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "unk_token": null,
    "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token }}"})");
  EXPECT_EQ(load()->prompt(kQuestion, {}), "<s>What is the capital of France?</s>");
}

TEST_F(LoadChatTemplate, OfSeveralTakesTheDefault) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(load()->prompt(kQuestion, {}), "d");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools"}]})");
  EXPECT_NE(refusal().find("\"default\""), std::string::npos) << refusal();
}

TEST_F(LoadChatTemplate, TheFileOfItsOwnComesFirst) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "old"})");
  write("chat_template.jinja", "{{ bos_token }}new");
  EXPECT_EQ(load()->prompt(kQuestion, {}), "<s>new");
}

TEST_F(LoadChatTemplate, WhatIsWrongIsNamedWithItsFileAndLine) {
  write("chat_template.jinja", "\n{% for message in messages %}");
  EXPECT_EQ(refusal(), directory_.path() + "/chat_template.jinja:2: {% endfor %} is missing");
  write("chat_template.jinja", "\n{{ messages[0].content.shout() }}");
  try {
    load()->prompt(kQuestion, {});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "chat_template.jinja:2: 'shout' is undefined, and cannot be called");
  }
  std::filesystem::remove(directory_.file("chat_template.jinja"));
  for (const char* config :
       {R"({"chat_template": 5})", R"({"chat_template": [5]})", R"({"bos_token": 5, "chat_template": ""})"}) {
    write("tokenizer_config.json", config);
    EXPECT_NE(refusal().find("tokenizer_config.json"), std::string::npos) << config;
  }
}

TEST(ChatTemplate, SmolLm2GetsItsDefaultSystemMessage) {
  std::ifstream file(testing::source_path("tests/templates/smollm2.jinja"));
  const ChatTemplate chat(std::string(std::istreambuf_iterator<char>(file), {}), "t", {"<|im_start|>", "<|im_end|>", "", ""});
  EXPECT_EQ(chat.prompt(kQuestion, {}),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, AFinalMessageIsContinuedWithItsSpacesUnlessTheTemplateTakesThem) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", "The "}}});
  ChatOptions options;
  options.continue_final_message = true;
  EXPECT_THROW(ChatTemplate("x", "t", {}).prompt(messages, options), InputError);  // and another one is to follow
  options.add_generation_prompt = false;
  const auto continued = [&](const char* source) { return ChatTemplate(source, "t", {}).prompt(messages, options); };
  EXPECT_EQ(continued("{% for m in messages %}<{{ m.content }}>{% endfor %}"), "<q><The ");
  EXPECT_EQ(continued("{% for m in messages %}<{{ m.content|trim }}>{% endfor %}"), "<q><The");
  EXPECT_THROW(continued("{{ messages[0].content }}"), InputError);
}

TEST(ChatTemplate, IsGivenNoTools) {
  EXPECT_EQ(ChatTemplate("{{ tools is none }}{{ bos_token is defined }}", "t", {}).prompt(kQuestion, {}), "TrueFalse");
}

}  // namespace
}  // namespace sluice
