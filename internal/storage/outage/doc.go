// Package outage turns the failed calls of a worker to its storage account into a few
// log lines about the worker: one when a fault begins, one a minute while it lasts, and
// one when it is over.
//
// A fault of the account concerns all jobs of a worker at once. If each job logged its
// own failed saves and renewals, two minutes without storage would be 4,600 lines for 64
// jobs, and none of them would say since when, or that the fault is over. So a [Policy]
// reports how each call ended to a [Watch], which logs; and the code that makes the
// calls asks [Level] at which level to log a failure of its own: at debug if a Watch
// reports its cause.
//
//	             first failed call          a minute          answer
//	calls   ──────────x──x─x──x──x──x──x──x──x──x──x──x──x──x───o────▶
//	lines             │                        │                │
//	        storage unreachable     storage still unreachable   storage reachable again
//	        since, jobs             calls_failed                after
//
// A fault of one job alone (a conflict, a blob that is leased, a damaged record) is no
// fault of the account: it is logged where it is decided.
package outage
