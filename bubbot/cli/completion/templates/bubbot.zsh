#compdef bubbot
# Completion of bubbot in zsh, written by `bubbot completion zsh`.

_bubbot() {
    local table=@TABLE@
    local -a rows row kinds options commands
    rows=("${(@f)table}")
    local path_words='' pending='' seen_dashes='' line word value kind before=''
    local -i number=1 i
    for ((i = 2; i < CURRENT; i++)); do
        word=${(Q)words[i]}
        if [[ -n $pending ]]; then pending=''; continue; fi
        if [[ $word == -- ]]; then seen_dashes=1; continue; fi
        if [[ $word == -* && -z $seen_dashes ]]; then
            if [[ $word != *=* ]]; then
                for line in $rows; do
                    row=("${(@s:|:)line}")
                    if [[ $row[1] == "$path_words" && $row[2] == "$word" ]]; then pending=$row[3]; break; fi
                done
            fi
            continue
        fi
        local is_command=''
        if ((number == 1)); then
            for line in $rows; do
                if [[ $line == "$path_words|$word|command|"* ]]; then is_command=1; break; fi
            done
        fi
        if [[ -n $is_command ]]; then path_words=${path_words:+$path_words }$word; else number+=1; fi
    done

    local cur=${(Q)PREFIX}
    if [[ -n $pending ]]; then
        kinds=("$pending")
    elif [[ $cur == --*=* && -z $seen_dashes ]]; then
        before=${cur%%=*}
        for line in $rows; do
            row=("${(@s:|:)line}")
            if [[ $row[1] == "$path_words" && $row[2] == "$before" ]]; then kinds+=("$row[3]"); fi
        done
        compset -P '*='
        cur=${cur#*=}
    else
        for line in $rows; do
            row=("${(@s:|:)line}")
            [[ $row[1] == "$path_words" ]] || continue
            case $row[2] in
                -*) [[ $cur == -* && -z $seen_dashes ]] && options+=("${row[2]}:$row[4]") ;;
                "$number" | '*') [[ $cur == -* && -z $seen_dashes ]] || kinds+=("$row[3]") ;;
                <->) ;;
                *) [[ $cur == -* ]] || ((number != 1)) || commands+=("${row[2]}:$row[4]") ;;
            esac
        done
    fi

    ((!$#commands)) || _describe -t commands command commands
    ((!$#options)) || _describe -o -t options option options
    for kind in $kinds; do
        case $kind in
            '='*) compadd -- ${=kind#=} ;;
            session | chat | terminal | tape | job)
                local -a values
                values=("${(@f)$(${(Q)words[1]/#\~/$HOME} __complete $kind "$cur" "${(@Q)words[2,CURRENT-1]}" 2>/dev/null)}")
                values=(${values:#})
                ((!$#values)) || compadd -- "${values[@]}"
                ;;
            file) _files ;;
            *) _message "${before:-text}" ;;
        esac
    done
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _bubbot "$@"
else
    compdef _bubbot bubbot
fi
