#include "trainer/metrics/progress_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/clock.h"

namespace cria::trainer {
namespace {

StepMetrics At(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.steps = 1000;
  metrics.loss = 3.45119;
  metrics.lr = 3e-4;
  metrics.grad_norm = 1.234;
  metrics.tokens_per_s = 12300;
  metrics.mfu = 0.412;
  metrics.mfu_full = 0.43;
  metrics.seconds_left = 123;
  return metrics;
}

// What a printer writes into a stream in memory.
class Screen {
 public:
  Screen() : file_(open_memstream(&data_, &size_)) {}
  ~Screen() {
    std::fclose(file_);
    std::free(data_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return std::string(data_, size_);
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

std::string LineAt(int64_t step) { return FormatProgressLine(At(step)); }

TEST(FormatProgressLineTest, ShowsEveryQuantity) {
  EXPECT_EQ(LineAt(120),
            "step 120/1000 | loss 3.4512 | lr 3.00e-04 | grad-norm 1.23 | 12.30 K tok/s | "
            "MFU 41.2% (43.0% full) | 2m 03s left");
  StepMetrics metrics = At(120);
  metrics.val_loss = 3.5;
  EXPECT_TRUE(FormatProgressLine(metrics).ends_with("2m 03s left | val-loss 3.5000"));
  metrics.comm_share = 0.25;
  metrics.comm_overlap = 0.8;
  EXPECT_NE(FormatProgressLine(metrics).find("full) | comm 25.0% (80.0% hidden) | 2m"),
            std::string::npos);
}

TEST(FormatProgressLineTest, ShowsWhatIsUnknownOrNotFinite) {
  StepMetrics metrics = At(1);
  metrics.loss = std::nan("");
  metrics.mfu = std::nan("");
  metrics.mfu_full = INFINITY;
  metrics.seconds_left = -1;
  EXPECT_EQ(FormatProgressLine(metrics),
            "step 1/1000 | loss nan | lr 3.00e-04 | grad-norm 1.23 | 12.30 K tok/s | "
            "MFU - (- full)");
  metrics.seconds_left = std::nan("");
  EXPECT_EQ(FormatProgressLine(metrics).find("left"), std::string::npos);
}

TEST(ProgressPrinterTest, PrintsPlainLinesOncePerSecondOffATerminal) {
  Screen screen;
  FakeClock clock;
  ProgressPrinter printer(screen.file(), &clock, ProgressPrinter::Style::kPlain);
  printer.Print(At(1));
  clock.Advance(0.5);
  printer.Print(At(2));
  clock.Advance(0.6);
  printer.Print(At(3));
  StepMetrics evaluated = At(4);
  evaluated.val_loss = 3.0;
  printer.Print(evaluated);
  printer.Print(At(5));
  printer.Print(At(1000));
  printer.Finish();
  EXPECT_EQ(screen.text(), LineAt(1) + "\n" + LineAt(3) + "\n" + FormatProgressLine(evaluated) +
                               "\n" + LineAt(1000) + "\n");
}

TEST(ProgressPrinterTest, RewritesOneLineOnATerminal) {
  Screen screen;
  FakeClock clock;
  ProgressPrinter printer(screen.file(), &clock, ProgressPrinter::Style::kTerminal);
  printer.Print(At(1));
  printer.Print(At(2));
  clock.Advance(0.2);
  printer.Print(At(3));
  EXPECT_EQ(screen.text(), "\r" + LineAt(1) + "\x1b[K\r" + LineAt(3) + "\x1b[K");
  printer.Finish();
  printer.Finish();
  EXPECT_EQ(screen.text(), "\r" + LineAt(1) + "\x1b[K\r" + LineAt(3) + "\x1b[K\n");
}

TEST(ProgressPrinterTest, KeepsEvaluatedStepsOnATerminal) {
  Screen screen;
  FakeClock clock;
  ProgressPrinter printer(screen.file(), &clock, ProgressPrinter::Style::kTerminal);
  StepMetrics evaluated = At(4);
  evaluated.val_loss = 3.0;
  printer.Print(evaluated);
  printer.Finish();
  EXPECT_EQ(screen.text(), "\r" + FormatProgressLine(evaluated) + "\x1b[K\n");
}

TEST(ProgressPrinterTest, TakesAStreamInMemoryForNoTerminal) {
  Screen screen;
  FakeClock clock;
  ProgressPrinter printer(screen.file(), &clock);
  printer.Print(At(1));
  EXPECT_EQ(screen.text(), LineAt(1) + "\n");
}

}  // namespace
}  // namespace cria::trainer
