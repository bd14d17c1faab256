# bash completion of mgpu:  eval "$(mgpu --show-completion bash)"
_mgpu() {
  local line IFS=$'\n'
  COMPREPLY=()
  while IFS= read -r line; do
    case "$line" in
      :files) compopt -o default -o bashdefault ;;
      :folders) compopt -o dirnames ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <(_MGPU_COMPLETE=bash "$1" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  case "${COMPREPLY[*]-}" in *=) compopt -o nospace ;; esac
}
complete -F _mgpu mgpu mgpu-doctor
