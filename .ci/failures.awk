# Prints what the failed tests of a log of go test reported, for five tests at most. The first
# failed test comes last, since the end of a log is read first. A test whose subtest failed is
# left out. Lines of tests in a container are read like all others.
function report(line) { text[test] = text[test] "  " substr(line, 1, 240) "\n" }
{ sub(/^ *container_test\.go:[0-9]+: /, "") }
/^ *=== (RUN|NAME|CONT) / { test = $3; more = 0; next }
/^ *--- FAIL: / {
  test = $3
  more = 0
  if (!(test in failed)) { failed[test] = 1; order[++n] = test }
  parent = test
  while (sub(/\/[^\/]*$/, "", parent)) hasFailedSubtest[parent] = 1
  next
}
/^ *--- (PASS|SKIP): / { test = ""; more = 0; next }
/_test\.go:[0-9]+: / {
  sub(/^ */, "")
  last[test] = $0
  more = 0
  if (/, want |left after|not within |missing: |panic|[Ee]rror|fail/ && reports[test] < 3) {
    reports[test]++
    more = 5 # further lines of this report
    report($0)
  }
  next
}
/^(FAIL|PASS|ok)/ { more = 0 }
more > 0 { more--; sub(/^ */, "    "); report($0) }
END {
  shown = 0
  for (i = 1; i <= n && shown < 5; i++)
    if (!(order[i] in hasFailedSubtest)) show[++shown] = order[i]
  for (i = shown; i > 0; i--) {
    test = show[i]
    print test ":"
    if (text[test] == "") report(last[test])
    printf "%s", text[test]
  }
}
