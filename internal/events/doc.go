// Package events makes a worker respond to the scheduled events of its VM.
//
// The watcher of package preempt reports each new document of the metadata
// service, preempt.Decide judges it, and a [Responder] carries the decision out:
//
//		metadata service ─▶ preempt.Watcher ─▶ preempt.Decide ─▶ Responder ─▶ Worker
//		                                                            │  evict, hasten,
//		                                                            │  withdraw, save all
//		                       acknowledge ◀── all others ready? ◀──┘
//
//	  - responder.go receives documents, learns the VM's name, and decides.
//	  - carry_out.go makes the worker drain, save, or take up work again.
//	  - ready.go records which events this worker is ready for.
//	  - acknowledge.go tells the platform that an event may start early; leader.go
//	    asks the other workers of the VMs that the event names.
//
// [Worker] is the interface that a Responder needs. It knows neither messages nor jobs.
//
// # Acknowledging
//
// An acknowledged event may start at any moment, so one is acknowledged only when
// nothing can be lost by it: the jobs are released or saved, no drain is under way,
// and every other worker that the event concerns is ready as well. Workers on the
// same VM learn that from their runtime directory, workers on other VMs from
// their heartbeats. A worker therefore records its ready events before it acknowledges,
// and a worker that restarts takes no work under an event that it, or
// another worker of its VM, left for (see [Responder.WaitSettled]).
package events
