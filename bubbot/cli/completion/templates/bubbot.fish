# Completion of bubbot in fish, written by `bubbot completion fish`.

set -g __bubbot_table (string split \n -- @TABLE@)

function __bubbot_rows --argument-names path # the rows of a command, without its path
    string replace -r -- '^'(string escape --style=regex -- "$path")'\|' '' (string match -r -- '^'(string escape --style=regex -- "$path")'\|.*' $__bubbot_table)
end

function __bubbot_values --argument-names kind current # a line each
    switch $kind
        case '=*'
            string split ' ' -- (string sub -s 2 -- $kind)
        case session chat terminal tape job
            set -l typed (commandline -opc)
            set -l program (string replace -r -- '^~' $HOME $typed[1])
            $program __complete $kind "$current" $typed[2..-1] 2>/dev/null
        case file
            __fish_complete_path "$current"
    end
end

function __bubbot_complete
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    set -l path ''
    set -l number 1
    set -l pending ''
    set -l seen_dashes ''
    set -l rows (__bubbot_rows '')
    for word in $typed[2..-1]
        if test -n "$pending"
            set pending ''
            continue
        end
        if test "$word" = --
            set seen_dashes 1
            continue
        end
        if test -z "$seen_dashes"; and string match -q -- '-*' "$word"
            if not string match -q -- '*=*' "$word"
                for row in $rows
                    set -l cells (string split '|' -- $row)
                    if test "$cells[1]" = "$word"
                        set pending "$cells[2]"
                        break
                    end
                end
            end
            continue
        end
        if test $number -eq 1; and string match -q -- "$word|command|*" $rows
            set path (string trim -- "$path $word")
            set rows (__bubbot_rows "$path")
        else
            set number (math $number + 1)
        end
    end

    if test -n "$pending"
        __bubbot_values "$pending" "$current"
        return
    end
    if test -z "$seen_dashes"; and string match -q -- '--*=*' "$current"
        set -l parts (string split -m 1 '=' -- "$current")
        for row in $rows
            set -l cells (string split '|' -- $row)
            if test "$cells[1]" = "$parts[1]"
                string replace -r -- '^' "$parts[1]=" (__bubbot_values "$cells[2]" "$parts[2]")
            end
        end
        return
    end
    for row in $rows
        set -l cells (string split '|' -- $row)
        if string match -q -- '-*' "$cells[1]"
            if test -z "$seen_dashes"; and string match -q -- '-*' "$current"
                printf '%s\t%s\n' "$cells[1]" "$cells[3]"
            end
        else if test -n "$seen_dashes"; or not string match -q -- '-*' "$current"
            if test "$cells[2]" = command
                if test $number -eq 1
                    printf '%s\t%s\n' "$cells[1]" "$cells[3]"
                end
            else if test "$cells[1]" = "$number" -o "$cells[1]" = '*'
                __bubbot_values "$cells[2]" "$current"
            end
        end
    end
end

complete -c bubbot -f -a '(__bubbot_complete)'
