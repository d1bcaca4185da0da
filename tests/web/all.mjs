// Every test of the page, one after the other, against one server and one browser: node all.mjs
import './sources.test.mjs';
import './leaderboard.test.mjs';
import './finals.test.mjs';
import './submission.test.mjs';
import './lineage.test.mjs';
import './comparison.test.mjs';
import './progress.test.mjs';
import './queue.test.mjs';
import './keyboard.test.mjs';
import './accessibility.test.mjs';
import './trouble.test.mjs';
