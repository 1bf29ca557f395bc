package main

import (
	"slices"
	"testing"
	"testing/fstest"
)

// TestFind: a test counts that uses package proof itself, or by a function, method or variable of
// its package; others, and integration tests, do not.
func TestFind(t *testing.T) {
	proving := "package p\nimport " + importPath + "\n"
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	found, err := find(fstest.MapFS{
		"a/a_test.go": file(proving + "func TestOne() { proof.Times(1, 2) }\nfunc times() int { return proof.Times(1, 2) }\n" +
			"var many = times()\nfunc TestOther() {}"),
		"a/b_test.go": file("package p\nfunc TestTwo() { r{}.run() }\n" +
			"func (r) run() { println(many) }\nfunc TestMain() { times() }"),
		"b/b_test.go":                         file("package p\nfunc TestThree() { proof() }\nfunc proof() {}"),
		"c/c.go":                              file(proving + "func TestFour() { proof.Full() }"),
		"internal/test/integration/i_test.go": file(proving + "func TestFive() { proof.Full() }"),
		".tools/t_test.go":                    file("no Go"),
	})
	slices.Sort(found["a"])
	if err != nil || len(found) != 1 || !slices.Equal(found["a"], []string{"TestOne", "TestTwo"}) {
		t.Errorf("find = %v, %v, want TestOne and TestTwo of a", found, err)
	}
}
