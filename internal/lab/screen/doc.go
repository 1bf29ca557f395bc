// Package screen shows a working fleet in a terminal: a picture of a few lines that
// changes, and above it the narration, which stays in the scrollback.
//
//	 11.0 s  Sudden death: spot_3 was killed without notice …
//	 11.0 s  spot_5 replaces spot_3.
//
//	4 of 16 jobs done   queue: 6 visible, 8 hidden   poison: 0            14.2 s
//	spot_1  process   libpython3.11.a+2          ██████████▓▓░░░░░░░░░░░░   52%
//	                  gopls+1                    ████████▓▓▓▓░░░░░░░░░░░░   48%
//	spot_3  killed    3 s ago; 2 jobs wait for another worker
//
// [Draw] is the picture, a pure function of a [Scene] and the terminal's size.
// [Play] shows it with Bubble Tea while a function runs.
package screen
