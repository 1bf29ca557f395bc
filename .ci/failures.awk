# Prints what the failed tests of a log of go test reported, at most three lines for each of
# five tests. The first failed test comes last, since the end of a log is read first. A test
# whose subtest failed is left out. Lines of tests in a container are read like all others.
{ sub(/^ *container_test\.go:[0-9]+: /, "") }
/^=== (RUN|NAME|CONT) / { test = $3; next }
/^ *--- FAIL: / {
  test = $3
  if (!(test in failed)) { failed[test] = 1; order[++n] = test }
  parent = test
  while (sub(/\/[^\/]*$/, "", parent)) hasFailedSubtest[parent] = 1
  next
}
/^ *--- (PASS|SKIP): / { test = ""; next }
/_test\.go:[0-9]+: / {
  sub(/^ */, "")
  last[test] = $0
  if (/, want |left after|not within |missing: |panic|error|fail/ && reports[test] < 3) {
    reports[test]++
    text[test] = text[test] "  " substr($0, 1, 240) "\n"
  }
}
END {
  shown = 0
  for (i = 1; i <= n && shown < 5; i++)
    if (!(order[i] in hasFailedSubtest)) show[++shown] = order[i]
  for (i = shown; i > 0; i--) {
    test = show[i]
    print test ":"
    printf "%s", text[test] != "" ? text[test] : "  " substr(last[test], 1, 240) "\n"
  }
}
