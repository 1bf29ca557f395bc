// Package tryout runs `lab try` on programs that are interruptible, and on programs with
// one fault each, which it must name.
package tryout
