// Package checkpoint stores one record per job: a blob that holds the job's
// progress, owner and final outcome.
//
// A [Record] is the blob's metadata; its body is the state that the handler
// reported last, or the result once the job is done. A [Store] reads and lists
// records. A [Claim] is one delivery's right to write one record:
//
//	Lookup ──▶ Acquire ──▶ Restore ──▶ Save, Touch … ──▶ Commit
//	 │                                          └───▶ Release, Fail, Poison
//	 └──▶ nothing to do, or not ours
//
// A claim has five parts:
//
//	ownership   owner, ETag, write sequence: sends writes, settles conflicts   write.go
//	accounting  facts, run time and ledger of each write                       facts.go
//	sender      sends states                                                   sender.go
//	baseline    the states that are no progress                                update.go
//	restorer    reads and restores states                                      restore.go
//
// # Fencing
//
// There are no blob leases. Every write is conditional on the record's ETag:
// a create on If-None-Match, every later write on If-Match. Acquiring a record
// changes its ETag, so an earlier owner can write nothing more, however long it
// was frozen. This alone protects the record; message leases only make it rare
// that two workers run the same job.
//
// # Conflict and doubt
//
// When a condition is refused, or no reply arrives, the caller does not know
// whether the write took effect: the SDK repeats requests, and a request may
// arrive late. Every write therefore carries the claim's token (a fencing token)
// and a sequence number that never repeats within the claim, and one read decides
// ([OnConflict]). A claim sends its writes strictly one after another, and settles a
// write in doubt before the next one. [OnDelivery] decides the rights of a delivery by
// the record that it finds.
//
// A record whose ETag is still the one in the condition was not written since. So an attempt
// to acquire it may be repeated under the same condition, as the SDK would repeat it.
//
// These rules implement the section on recovery of docs/DESIGN.md. They were
// model-checked; change them only together with the model.
//
// # Saving what has changed
//
// A stream may say which ranges an earlier stream has too (incremental.go). Saves compare these
// ranges with the recorded hashes of units. The write that ends the claim does not read them,
// as far as the save before has confirmed them.
//
// If few pages of a state have changed, they alone are sent. The body then has a layout
// ([Record.Layout]): ranges of the body, one after another, are the state.
//
// # Reading a large state
//
// The hash in the record covers the whole MiBs of the state, however it is cut into blocks. So
// versions that cut differently read each other's states, and ranges are hashed in parallel
// without listing the blocks. Touches continue during a restore, and the reader follows their
// ETags; saves wait until the state is read or closed, since they would replace it.
package checkpoint
