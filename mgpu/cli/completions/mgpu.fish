# fish completion of mgpu:  mgpu --show-completion fish | source
function __mgpu_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in (env _MGPU_COMPLETE=fish $words[1] $words[2..-1] "$current" 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path "$current"
            case :folders
                __fish_complete_directories "$current" ''
            case '*'
                printf '%s\n' $line
        end
    end
end
for program in mgpu mgpu-doctor
    complete -c $program -f -k -a '(__mgpu_complete)'
end
