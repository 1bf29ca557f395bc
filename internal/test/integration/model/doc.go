// Package model checks the protocol of a job's record with spin. record.pml is
// the model, model.md says how it maps to the code. The test is built with the
// tag integration; see make integration.
package model
