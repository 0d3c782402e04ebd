# Completion of bubbot in bash, written by `bubbot completion bash`.

_bubbot_table=@TABLE@

_bubbot_complete() {
    # Bash splits words at ":" and "=", which names of sessions contain: join what stands together on the line.
    local line=$COMP_LINE words=() piece i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        piece=${COMP_WORDS[i]}
        if [[ $i -eq 0 || $line == [[:space:]]* ]]; then
            line=${line#"${line%%[![:space:]]*}"}
            words+=("$piece")
        else
            words[${#words[@]}-1]+=$piece
        fi
        line=${line#"$piece"}
    done
    local last=$((${#words[@]} - 1))
    local cur=${words[last]} path='' number=1 pending='' seen_dashes='' word p w v h  # of a row: path, word, values, help
    for ((i = 1; i < last; i++)); do
        word=${words[i]}
        if [[ -n $pending ]]; then pending=''; continue; fi
        if [[ $word == -- ]]; then seen_dashes=1; continue; fi
        if [[ $word == -* && -z $seen_dashes ]]; then
            if [[ $word != *=* ]]; then
                while IFS='|' read -r p w v h; do
                    if [[ $p == "$path" && $w == "$word" && -n $v ]]; then pending=$v; break; fi
                done <<<"$_bubbot_table"
            fi
            continue
        fi
        local is_command=''
        if [[ $number -eq 1 ]]; then
            while IFS='|' read -r p w v h; do
                if [[ $p == "$path" && $w == "$word" && $v == command ]]; then is_command=1; break; fi
            done <<<"$_bubbot_table"
        fi
        if [[ -n $is_command ]]; then path=${path:+$path }$word; else number=$((number + 1)); fi
    done

    local candidates=() kinds=() before=''
    if [[ -n $pending ]]; then
        kinds=("$pending")
    elif [[ $cur == --*=* && -z $seen_dashes ]]; then
        before=${cur%%=*}=
        while IFS='|' read -r p w v h; do
            if [[ $p == "$path" && $w == "${cur%%=*}" ]]; then kinds+=("$v"); fi
        done <<<"$_bubbot_table"
        cur=${cur#*=}
    else
        while IFS='|' read -r p w v h; do
            [[ $p == "$path" ]] || continue
            case $w in
                -*) [[ $cur == -* && -z $seen_dashes ]] && candidates+=("$w") ;;
                "$number" | '*') [[ $cur == -* && -z $seen_dashes ]] || kinds+=("$v") ;;
                [0-9]*) ;;
                *) [[ $cur == -* || $number -ne 1 ]] || candidates+=("$w") ;;
            esac
        done <<<"$_bubbot_table"
    fi

    # What is typed may be quoted; names are compared with what it means.
    local kind plain=${cur#[\"\']} value
    plain=${plain//\\/}
    for kind in "${kinds[@]}"; do
        case $kind in
            =*) read -ra values <<<"${kind#=}"; candidates+=("${values[@]}") ;;
            session | chat | terminal | tape | job)
                while IFS= read -r value; do candidates+=("$value"); done < <(
                    "${words[0]/#\~/$HOME}" __complete "$kind" "$plain" "${words[@]:1}" 2>/dev/null
                ) ;;
            file)
                compopt -o filenames 2>/dev/null
                while IFS= read -r value; do COMPREPLY+=("$value"); done < <(compgen -f -- "${plain/#\~/$HOME}")
                return ;;
        esac
    done

    # Bash replaces only what follows the last ":" or "=" of the word.
    local cut='' typed=$before$cur
    if [[ $COMP_WORDBREAKS == *:* && $typed == *:* ]]; then cut=${typed%"${typed##*:}"}
    elif [[ $COMP_WORDBREAKS == *=* && $typed == *=* ]]; then cut=${typed%"${typed##*=}"}; fi
    for value in "${candidates[@]}"; do
        if [[ $value == "$plain"* ]]; then
            if [[ $cur == [\"\']* ]]; then
                # Others choose these names, and bash does not quote them again: none may end the quotes or run anything.
                [[ $value != *[\$\`\"\'\\!]* ]] || continue
                word=$before$value
            else
                printf -v word '%s%q' "$before" "$value"
            fi
            COMPREPLY+=("${word#"$cut"}")
        fi
    done
}

complete -F _bubbot_complete bubbot
