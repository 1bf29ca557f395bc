// Package scripts runs tools/deploy.sh and tools/deploy-evict.sh against a stand-in for the
// Azure CLI. It consists of tests only.
//
// The stand-in is this test binary, called as az. It answers each command with JSON as
// Azure's interfaces have it, from notes in a folder, and evaluates --query and --output as
// az does. So a script that asks for the wrong property gets a wrong answer.
package scripts
