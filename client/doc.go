// Package client puts jobs on a deployment of spotworker, and follows and steers them.
//
//	c, err := client.Open(client.Options{Account: "contoso", Credential: credential})
//	...
//	result, err := c.Wait(ctx, "frame-7")
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
