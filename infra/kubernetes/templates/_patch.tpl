{{- /*
spotworker.patch applies a JSON patch, of the operations that the component shared-nodes uses: remove,
and add of a key or at the end of a list.
*/ -}}
{{- define "spotworker.patch" }}
{{- range $op := .patch }}
{{- $path := splitList "/" (trimPrefix "/" $op.path) }}
{{- $key := last $path }}
{{- $above := initial $path }}
{{- $isList := eq $key "-" }}
{{- if $isList }}
{{- $key = last $above }}
{{- $above = initial $above }}
{{- end }}
{{- $at := $.object }}
{{- range $above }}
{{- if kindIs "slice" $at }}{{ $at = index $at (atoi .) }}{{ else }}{{ $at = get $at . | required (printf "patch of nothing: %s" $op.path) }}{{ end }}
{{- end }}
{{- if and $isList (eq $op.op "add") (hasKey $at $key) }}
{{- $_ := set $at $key (append (get $at $key) $op.value) }}
{{- else if and (not $isList) (eq $op.op "add") }}
{{- $_ := set $at $key $op.value }}
{{- else if and (not $isList) (eq $op.op "remove") (hasKey $at $key) }}
{{- $_ := unset $at $key }}
{{- else }}
{{- fail (printf "patch of nothing: %s %s" $op.op $op.path) }}
{{- end }}
{{- end }}
{{- end }}
