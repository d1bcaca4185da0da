"""measure.py and table.py without a GPU, by programs that say what is asked of them: python3 -m unittest measure_test"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from cases import ATTENTION, PATTERNED, TOPK

HERE = pathlib.Path(__file__).resolve().parent

# `sluice bench NAME --device cuda --seconds S --json FILE`: rows from rows.json beside it.
SLUICE = """#!{python}
import json, pathlib, sys
rows = json.loads((pathlib.Path(__file__).parent / "rows.json").read_text())
report = {{"name": sys.argv[2], "copy_tb_per_s": 3.0, "rows": rows}}
pathlib.Path(sys.argv[sys.argv.index("--json") + 1]).write_text(json.dumps(report))
"""
# A peer: a row for each case that it is asked for, and one of a variant that is slower.
PEER = """#!{python}
import json, sys
for case in sys.argv[2:]:
    for variant, us in (("", {us}), ("other", {us} + 1)):
        print(json.dumps(dict(peer="{peer}", bench="{bench}", case=case, us=us, error={error}, variant=variant)), flush=True)
sys.exit({status})
"""


class MeasureTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.out = self.folder / "out"
        (self.folder / "programs").mkdir()
        (self.folder / "programs" / "build.json").write_text('{"flashinfer": "1.2.3"}')
        self.program("sluice", SLUICE)
        self.rows([(case, 10.0, True) for case in (*ATTENTION, *TOPK, *PATTERNED)])

    def program(self, name, text, **values):
        path = self.folder / name
        path.write_text(text.format(python=sys.executable, **values))
        path.chmod(0o755)

    def peer(self, program, peer, bench, us=20.0, error=1e-3, status=0):
        self.program(f"programs/{program}", PEER, peer=peer, bench=bench, us=us, error=error, status=status)

    def rows(self, cases):
        rows = [{"name": case.ours[0], "shape": case.ours[1], "time_us": us, "correct": correct} for case, us, correct in cases]
        (self.folder / "rows.json").write_text(json.dumps(rows))

    def measure(self, *arguments):
        command = [sys.executable, "-B", str(HERE / "measure.py"), "--out", str(self.out), "--sluice", str(self.folder / "sluice")]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # without a GPU, PyTorch is left out
        environment.pop("PEERS_FLASHINFER", None)
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment)
        return done.stdout + done.stderr

    def measure_programs(self, *arguments):
        return self.measure("--programs", str(self.folder / "programs"), *arguments)

    def table(self):
        return (self.out / "table.md").read_text()

    def test_the_table_has_the_best_variant_and_its_ratio(self):
        self.peer("flashinfer_topk", "FlashInfer", "topk")
        self.measure_programs("--parts", "topk")
        self.assertIn("| 1 | 65536 | 2048 | 10.0 | 20.0 (2.00x) | – |", self.table())
        self.assertIn("FlashInfer 1.2.3", self.table())

    def test_sides_take_turns(self):
        self.peer("flashinfer_topk", "FlashInfer", "topk")
        self.measure_programs("--parts", "topk")
        steps = json.loads((self.out / "run.json").read_text())["steps"]
        self.assertEqual(["sluice topk", "flashinfer_topk", "flashinfer_topk", "sluice topk"], [step["name"] for step in steps])

    def test_each_program_of_a_group_gets_its_cases(self):
        for group in (2, 4):
            self.peer(f"flashinfer_xqa_{group}", "FlashInfer XQA", "attention", us=10.0 * group)
        self.measure_programs("--parts", "attention", "--rounds", "1")
        self.assertIn("| 64 × 8 (2) | 8192 | 64 | 10.0 | – | – | 20.0 (2.00x) | – |", self.table())
        self.assertIn("| 16 × 8 (4) | 32768 | all | 10.0 | – | – | 40.0 (4.00x) | – |", self.table())

    def test_what_is_wrong_has_no_time(self):
        self.peer("flashinfer_topk", "FlashInfer", "topk", error=0.5)
        said = self.measure_programs("--parts", "topk")
        self.assertIn("FlashInfer is wrong, and left out", said)
        self.assertIn("| 1 | 65536 | 2048 | 10.0 | – | – |", self.table())

    def test_what_is_wrong_of_ours_has_no_time_and_is_said(self):
        self.rows([(case, 10.0, case.rows > 1) for case in TOPK])
        said = self.measure_programs("--parts", "topk")
        self.assertIn('sluice bench topk has no correct row "exact, rows 1, pages 8192, k 2048, float32"', said)

    def test_a_program_that_fails_keeps_its_rows_and_is_said(self):
        self.peer("flashinfer_topk", "FlashInfer", "topk", status=3)
        said = self.measure_programs("--parts", "topk", "--rounds", "1")
        self.assertIn("flashinfer_topk failed in round 1 (exit 3)", said)
        self.assertIn("| 1 | 65536 | 2048 | 10.0 | 20.0 (2.00x) | – |", self.table())

    def test_a_program_that_was_not_built_is_said(self):
        self.assertIn("so not measured: flashinfer_topk", self.measure_programs("--parts", "topk"))

    def test_all_measured_is_success(self):
        """But for what this machine lacks."""
        self.peer("flashinfer_topk", "FlashInfer", "topk")
        self.measure_programs("--parts", "topk")
        problems = json.loads((self.out / "run.json").read_text())["problems"]
        self.assertEqual([], [problem for problem in problems if "flashinfer" in problem.lower() or "sluice" in problem])

    def test_a_missing_flashinfer_is_said_and_the_rest_goes_on(self):
        said = self.measure("--parts", "topk", "--flashinfer", str(self.folder))
        self.assertIn("has no include/flashinfer", said)
        self.assertIn("| 1 | 65536 | 2048 | 10.0 | – | – |", self.table())

    def test_patterns_have_a_line_for_each_length(self):
        self.measure_programs("--parts", "patterns")
        for tokens in (2048, 8192, 16384):
            self.assertIn(f"| {tokens} | strided | the last 512, every 512th | 10.0 | – | – | 10.0 | – |", self.table())

    def test_an_unknown_part_is_refused(self):
        self.assertIn("no part is called tokp", self.measure("--parts", "tokp"))

    def test_a_folder_without_results_is_refused(self):
        done = subprocess.run([sys.executable, "-B", str(HERE / "table.py"), str(self.folder)], capture_output=True, text=True)
        self.assertIn("FOLDER is one that measure.py wrote", done.stderr)


if __name__ == "__main__":
    unittest.main()
