// Package deadline judges whether a job will meet its deadline, and so whether it should
// move from Spot VMs to VMs of regular priority.
//
// The rule follows Uniform Progress (Z. Wu, W.-L. Chiang, Z. Mao, Z. Yang, E. Friedman,
// S. Shenker, I. Stoica, "Can't Be Late: Optimizing Spot Instance Savings under
// Deadlines", NSDI 2024), which needs no forecast of when Spot VMs are available:
//
//		work done
//		  │                              ╱ all of it
//		  │                         ╱  ·
//		  │                    ╱   ·      ╱ the line: the same share of the work as of the time
//		  │               ╱   · ──┘       · the job: flat while it has no VM
//		  │          ╱ ──·────            below the line by two changeovers: behind
//		  │     ╱  ·
//		  └──────────────────────────────── deadline
//
//	  - The line. The time until the deadline is more than the work takes; that slack is to
//	    last to the end. So after each share of the time the job should have done the same
//	    share of its work. A job below that line would be late if it continued at the rate
//	    that it had so far.
//	  - The safety net. Whatever the rate was, the rest of the time must suffice for the rest
//	    of the work, a move, and one more interruption.
//	  - Exploitation. A job that runs on a Spot VM stays there until it is interrupted, even
//	    below the line.
//
// It differs from the paper in one thing: a job that moved does not return to Spot VMs, so
// a move costs all of the work that is left. Therefore the tolerance that the paper uses
// before it returns, two changeovers, applies before a move here.
//
// Everything here is a pure function of its arguments.
package deadline
