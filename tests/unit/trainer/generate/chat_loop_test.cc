#include "trainer/generate/chat_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "tests/support/process.h"
#include "tests/unit/trainer/generate/byte_tokenizer.h"
#include "tests/unit/trainer/generate/markov_model.h"

namespace cria::trainer {
namespace {

constexpr char kTemplate[] =
    "{{ bos_token }}<|start_header_id|>{{ role }}<|end_header_id|>\n\n{{ c | trim }}<|eot_id|>";

// After a header's empty line comes "a"; "e" ends a reply.
float ReplyLogit(int32_t from, int32_t to) {
  if (from == 'e') return to == kByteEot ? 10.0f : 0.0f;
  return AlphabetLogit(from, to);
}

class ChatLoopTest : public testing::Test {
 protected:
  ChatLoopTest()
      : chat_(ChatTemplate::Create(kTemplate, ByteTokenizer(), kByteBos, "model").value()),
        model_(ReplyLogit),
        decoder_(model_.NewDecoder({.max_positions = 256})),
        generator_(decoder_.get(), &ByteTokenizer(), &clock_) {
    options_.generate.eos_ids = {kByteEot};
    options_.on_turn = [this](const ChatTurn& turn) { turns_.push_back(turn); };
  }

  // What was printed.
  std::string Run(const std::string& input, Status* status = nullptr) {
    const std::string file = JoinPath(FreshDir("chat"), "in");
    CRIA_CHECK(WriteFileAtomic(file, input).ok());
    const int in = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    const std::string out = RunFrom(in, status);
    close(in);
    return out;
  }

  std::string RunFrom(int in, Status* status = nullptr) {
    const std::string dir = FreshDir("chat_out");
    options_.in = in;
    options_.out = std::fopen(JoinPath(dir, "out").c_str(), "w");
    ChatLoop loop(&chat_, &generator_, options_);
    const Status done = loop.Run();
    std::fclose(options_.out);
    if (status != nullptr) {
      *status = done;
    } else {
      EXPECT_TRUE(done.ok()) << done;
    }
    return ReadFile(JoinPath(dir, "out")).value();
  }

  FakeClock clock_;
  const ChatTemplate chat_;
  const MarkovModel model_;
  const std::unique_ptr<model::LlamaDecoder> decoder_;
  Generator generator_;
  ChatLoopOptions options_;
  std::vector<ChatTurn> turns_;
};

TEST_F(ChatLoopTest, AnswersEachLineWithTheConversationBeforeIt) {
  EXPECT_EQ(Run("Hello\n\n  \nAnd then?"), "abcde\nabcde\n");
  ASSERT_EQ(turns_.size(), 2u);
  EXPECT_EQ(turns_[0].message, "Hello");
  EXPECT_EQ(turns_[0].reply.reason, FinishReason::kEos);
  // The second prompt is the first, its reply, and the next message.
  std::vector<int32_t> expected = turns_[0].prompt_ids;
  chat_.EndReply(turns_[0].reply.ids, &expected);
  chat_.AddMessage("user", "And then?", &expected);
  chat_.StartReply(&expected);
  EXPECT_EQ(turns_[1].prompt_ids, expected);
}

TEST_F(ChatLoopTest, ATurnRunsItsOwnTokensOnly) {
  Run("Hello\nAnd then?\nAnd?\n");
  ASSERT_EQ(turns_.size(), 3u);
  const auto last = static_cast<int64_t>(turns_[2].prompt_ids.size());
  const GenerateStats& stats = generator_.stats();
  // Each prompt token once, but the replies' own, which decoding had run: 5 letters each. The
  // token that ends a reply was chosen and never run.
  EXPECT_EQ(stats.prompt_tokens, last - 2 * 5);
  EXPECT_EQ(stats.prompt_tokens + stats.cached_tokens,
            static_cast<int64_t>(turns_[0].prompt_ids.size() + turns_[1].prompt_ids.size()) + last);
}

TEST_F(ChatLoopTest, GivesTheSameAsWithoutACache) {
  options_.generate.sampling = {.temperature = 1.5, .seed = 4};
  options_.generate.max_tokens = 7;
  Run("Hello\nAnd then?\nAnd?\n");
  ASSERT_EQ(turns_.size(), 3u);
  for (const ChatTurn& turn : turns_) {
    const auto decoder = model_.NewDecoder({.max_positions = 256});
    Generator fresh(decoder.get(), &ByteTokenizer(), &clock_);
    const auto out = fresh.Run({{.ids = turn.prompt_ids}}, options_.generate);
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_EQ(out->at(0).ids, turn.reply.ids);
  }
}

TEST_F(ChatLoopTest, SaysWhenTheConversationIsFull) {
  std::string input;
  for (int i = 0; i < 20; ++i) input += "Tell me more\n";
  Status status;
  Run(input, &status);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("a sequence has room for 256"), std::string::npos) << status;
  EXPECT_GT(turns_.size(), 2u);
}

TEST_F(ChatLoopTest, OnATerminalAnInterruptEndsTheReplyElseTheConversation) {
  for (const bool is_terminal : {false, true}) {
    turns_.clear();
    std::atomic<int> stop = 0;
    options_.is_terminal = is_terminal;
    options_.stop = &stop;
    options_.on_turn = [&](const ChatTurn& turn) {
      turns_.push_back(turn);
      if (turns_.size() == 1) stop = 1;  // as if it had come while the reply was generated
    };
    const std::string out = Run("Hello\nAgain\n");
    EXPECT_EQ(turns_.size(), is_terminal ? 2u : 1u);
    EXPECT_EQ(out, is_terminal ? "> abcde\n> abcde\n> \n" : "abcde\n");
  }
}

TEST_F(ChatLoopTest, ALineMayComeInPieces) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::thread writer([&] {
    for (const std::string piece : {"Hel", "lo\r\nAg", "ain"}) {
      EXPECT_EQ(write(ends[1], piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
    }
    close(ends[1]);
  });
  RunFrom(ends[0]);
  writer.join();
  close(ends[0]);
  ASSERT_EQ(turns_.size(), 2u);
  EXPECT_EQ(turns_[0].message, "Hello");
  EXPECT_EQ(turns_[1].message, "Again");
}

TEST_F(ChatLoopTest, AnInterruptEndsTheWaitForALine) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(write(ends[1], "Hello\nAg", 8), 8);
  std::atomic<int> stop = 0;
  options_.stop = &stop;
  std::thread interrupt;
  options_.on_turn = [&](const ChatTurn& turn) {
    turns_.push_back(turn);
    interrupt = std::thread([&] { stop = 1; });
  };
  EXPECT_EQ(RunFrom(ends[0]), "abcde\n");
  interrupt.join();
  EXPECT_EQ(turns_.size(), 1u);
  for (const int end : ends) close(end);
}

}  // namespace
}  // namespace cria::trainer
