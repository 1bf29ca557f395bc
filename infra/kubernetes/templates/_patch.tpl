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

{{- /*
spotworker.add puts values into an object. A list is appended, a map is merged, and the rest replaced.
*/ -}}
{{- define "spotworker.add" }}
{{- range $key, $value := .more }}
{{- $has := get $.object $key }}
{{- if and (kindIs "slice" $has) (kindIs "slice" $value) }}
{{- $_ := set $.object $key (concat $has $value) }}
{{- else if and (kindIs "map" $has) (kindIs "map" $value) }}
{{- $_ := set $.object $key (mergeOverwrite $has $value) }}
{{- else if $value }}
{{- $_ := set $.object $key $value }}
{{- end }}
{{- end }}
{{- end }}
