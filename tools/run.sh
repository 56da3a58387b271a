#!/bin/bash
# `make run` and `make stop`: three simulated engines, the control plane and Envoy on this machine.
# usage: run.sh start [MODE] | mode MODE | stop
# MODE is enforce (the default), shadow or off; `mode` starts Envoy anew and leaves the rest. Logs, process
# ids and data are in .run/; `stop` removes it.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=target/release
run=.run
engines=3
ports=(10000 9901 9400 8101 8102 8103 5557 5558 5559 5560 5561 5562)
of=(Envoy "Envoy admin" "control plane" "engine 1" "engine 2" "engine 3"
  "engine 1 events" "engine 1 replay" "engine 2 events" "engine 2 replay" "engine 3 events" "engine 3 replay")

stop() {
  [ -d "$run" ] || return 0
  end "$run"/*.pid
  rm -rf "$run"
}

end() { # PIDFILE...
  local pids=() pid file
  for file in "$@"; do
    [ -e "$file" ] || continue
    pid=$(cat "$file")
    # Only a process that is still the one we started: a process id is used again.
    if [ "$(cat "/proc/$pid/stat" 2>/dev/null | cut -d' ' -f22)" = "$(cat "${file%.pid}.started")" ]; then
      kill -TERM "$pid" 2>/dev/null && pids+=("$pid")
    fi
  done
  for _ in $(seq 100); do
    for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null && { sleep 0.1; continue 2; }; done
    break
  done
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
}

launch() { # NAME COMMAND...
  local name=$1
  shift
  setsid "$@" >>"$run/$name.log" 2>&1 </dev/null &
  echo $! >"$run/$name.pid"
  cut -d' ' -f22 "/proc/$!/stat" >"$run/$name.started" 2>/dev/null || true
}

fail() {
  echo "$1" >&2
  for log in "$run"/*.log; do
    echo "--- the end of $log" >&2
    tail -5 "$log" >&2
  done
  # The logs stay for a look; the processes do not.
  cp -r "$run" "$run-failed.$$" 2>/dev/null && stop && mkdir -p "$run" && mv "$run-failed.$$" "$run/failed"
  exit 1
}

wait_for() { # WHAT SECONDS COMMAND...
  local what=$1 seconds=$2
  shift 2
  for _ in $(seq $((seconds * 10))); do
    "$@" >/dev/null 2>&1 && return 0
    for file in "$run"/*.pid; do
      kill -0 "$(cat "$file")" 2>/dev/null || fail "$(basename "$file" .pid) has ended, see $run/failed"
    done
    sleep 0.1
  done
  fail "$what: not within $seconds s, see $run/failed"
}

check_ports() {
  local taken=() i
  for i in "${!ports[@]}"; do
    if (exec 3<>"/dev/tcp/127.0.0.1/${ports[$i]}") 2>/dev/null; then taken+=("${ports[$i]} (${of[$i]})"); fi
  done
  [ ${#taken[@]} -eq 0 ] && return 0
  printf 'port %s is taken\n' "${taken[@]}" >&2
  echo "End what listens there (ss -ltnp tells who; make stop, if it is an earlier make run from this or" >&2
  echo "another folder), or change the ports in envoy/envoy.yaml, envoy/prefix-picker.yaml and tools/run.sh." >&2
  exit 1
}

check_mode() {
  case "$1" in
  enforce | shadow | off) ;;
  *) echo "$1: the mode is enforce, shadow or off" >&2; exit 2 ;;
  esac
}

launch_envoy() { # MODE
  local envoy
  envoy=$(tools/envoy.sh)
  sed "s/\"control_plane\": {/\"mode\": \"$1\", &/" envoy/envoy.yaml >"$run/envoy.yaml"
  grep -q "\"mode\": \"$1\"" "$run/envoy.yaml"
  launch envoy "$envoy" -c "$run/envoy.yaml" --concurrency 2 --disable-hot-restart --file-flush-interval-msec 200 --log-level warning
}

wait_for_envoy() {
  wait_for Envoy 60 curl -fs -o /dev/null http://127.0.0.1:9901/ready
  wait_for "the table in Envoy" 30 bash -c \
    'curl -fs "http://127.0.0.1:9901/stats?filter=prefix_picker_filter_sync_loads_total" | grep -q "total: [1-9]"'
}

change_mode() {
  check_mode "$1"
  [ -e "$run/envoy.pid" ] || { echo "nothing runs here: make run" >&2; exit 1; }
  end "$run/envoy.pid"
  launch_envoy "$1"
  wait_for_envoy
  echo "Envoy runs again, mode $1"
}

start() {
  local i
  check_mode "$1"
  tools/envoy.sh >/dev/null
  stop
  check_ports
  mkdir -p "$run"
  for i in $(seq $engines); do
    launch "engine-$i" $bin/engine-sim --listen "127.0.0.1:$((8100 + i))" \
      --events "tcp://*:$((5555 + 2 * i))" --replay "tcp://*:$((5556 + 2 * i))" --enable-force-include-usage
  done
  launch control-plane $bin/prefix-picker serve --config envoy/prefix-picker.yaml
  # For prefix-picker's own commands.
  sed -n 's/^tokens: \[\(.*\)\]$/\1/p' envoy/prefix-picker.yaml >"$run/token"
  launch_envoy "$1"
  for i in $(seq $engines); do
    wait_for "engine $i" 60 curl -fs -o /dev/null "http://127.0.0.1:$((8100 + i))/health"
  done
  wait_for "the control plane" 60 curl -fs -o /dev/null http://127.0.0.1:9400/readyz
  wait_for_envoy

  local words='You are a careful assistant for a team that runs large language models. Answer briefly and say what you do not know.'
  local prompt="$words $words $words $words"
  echo "Running: Envoy on 10000, its admin page on 9901, the control plane on 9400, engines on 8101-8103. Stop: make stop"
  echo "Send this twice: the same x-engine answers, the second time with cached_tokens above 0."
  echo "curl -si http://127.0.0.1:10000/v1/chat/completions -H 'content-type: application/json' -d '{\"model\": \"sim\", \"max_tokens\": 8, \"messages\": [{\"role\": \"system\", \"content\": \"$prompt\"}, {\"role\": \"user\", \"content\": \"What is a prefix cache?\"}]}'"
}

case "${1:-}" in
start) start "${2:-enforce}" ;;
mode) change_mode "${2:-enforce}" ;;
stop) stop ;;
*) echo "usage: run.sh start [MODE] | mode MODE | stop" >&2; exit 2 ;;
esac
