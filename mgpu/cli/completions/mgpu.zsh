#compdef mgpu mgpu-doctor
# zsh completion of mgpu:  eval "$(mgpu --show-completion zsh)"  after compinit
_mgpu() {
  local line
  local -a described
  for line in "${(@f)$(_MGPU_COMPLETE=zsh "${words[1]}" "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case "$line" in
      '') ;;
      :files) _files ;;
      :folders) _files -/ ;;
      *) described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
    esac
  done
  (( $#described )) && _describe -V mgpu described
}
if [[ "${funcstack[1]-}" == _mgpu ]]; then
  _mgpu "$@"
elif (( $+functions[compdef] )); then
  compdef _mgpu mgpu mgpu-doctor
fi
