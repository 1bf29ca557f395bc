// Package client puts jobs on a deployment of spotworker, waits for them and reads their
// results. It also lists and steers them.
//
//	c, err := client.Open(client.Options{Account: "contoso", Credential: credential})
//	...
//	err = c.Create(ctx) // once, for queues and containers that do not exist
//	...
//	id, err := c.Put(ctx, client.Spec{ID: "alps-frame-7", Kind: "render", Payload: frame{"alps", 7}})
//	...
//	result, err := c.Wait(ctx, id)
//
// A program that uses it puts jobs, waits for them, and reads the rest:
//
//   - Put: [Client.Create] makes the queues and containers of the deployment, which
//     infra/bicep has made already on Azure. [Client.Put] puts one job and [Client.PutMany]
//     any number. [Client.Upload] stores a file for the inputs of jobs. [Command] is a job that runs a
//     command, and [Client.Attach] adds the files that it needs.
//   - Wait: [Client.Wait] returns a job's result when it has ended, [Client.WaitMany] the
//     outcomes of many in the order of their ends.
//   - Read: [Client.Result] is the result of a job that is done, [Client.Get] its record,
//     [Client.List] many records, [Client.Log] its log, [Client.Outputs] its files.
//   - [Kind] does this with the types of a kind's payload and result.
//
// The zero values of [Options] mean the defaults of the commands producer and spotctl:
// the names of queues and containers start with "spotworker", and without a credential
// the developer's own sign-in is used.
//
// # Jobs and records
//
// A job that was put is a message on a queue. The first worker that claims it makes its
// record, a blob whose metadata is a [Job]; from then on it can be read and listed. The
// record is kept when the job has ended, with its result.
//
//	put ──▶ on the queue ──▶ running ⇄ open ──▶ done, poison or cancelled
//	        no record        └────── Get, List, Result, Wait ─────┘
//
// So [ErrNotFound] means that the job waits for its first worker, or that the id is
// wrong; nothing tells these apart, since queues cannot be searched.
//
// # Errors
//
// Errors that a program may want to tell apart are variables for [errors.Is], such as
// [ErrNotFound]. An [*EndedError] has the record of a job without a result, and a
// [*DeniedError] the missing role.
package client
