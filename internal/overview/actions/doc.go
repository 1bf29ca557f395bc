// Package actions has the questions before changes of a deployment and their outcomes in words,
// for the commands of spotctl and producer and for the page of spotctl web.
//
// The changes themselves are methods of package client. A command and the page differ in how
// they show a question and an outcome, and not in the words.
package actions
