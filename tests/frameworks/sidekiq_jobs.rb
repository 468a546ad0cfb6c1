# Sidekiq: jobs at once, later and in bulk, retries, dead jobs, two queues, what its API shows and changes,
# and a job that a worker had not finished when it was told to stop.
#
#     ruby sidekiq_jobs.rb PORT
#
# A worker process loads this file, too, and finds the port in KEDIS_PORT.

require "sidekiq"
require "sidekiq/api"

PORT = Integer(ENV["KEDIS_PORT"] || ARGV[0])
WAIT_S = 60
URL = "redis://127.0.0.1:#{PORT}/0"

Sidekiq.configure_client { |config| config.redis = {url: URL} }
Sidekiq.configure_server do |config|
  config.redis = {url: URL}
  config.logger.level = Logger::FATAL
  # How often it looks for what is due.
  config.options[:poll_interval_average] = 0.2
end
# This Sidekiq is older than what redis-rb would like it to call.
Redis.silence_deprecations = true
STORE = Redis.new(url: URL)

class Add
  include Sidekiq::Worker

  def perform(key, a, b)
    STORE.rpush(key, a + b)
  end
end

class Now
  include Sidekiq::Worker

  def perform(key)
    STORE.rpush(key, Time.now.to_f)
  end
end

class Stubborn
  include Sidekiq::Worker
  sidekiq_options retry: 5

  def perform(key)
    tries = STORE.incr(key)
    raise "not yet" if tries < 3

    STORE.rpush("#{key}:done", tries)
  end
end

class Broken
  include Sidekiq::Worker
  sidekiq_options retry: 0, queue: "critical"
  sidekiq_retries_exhausted { |job, error| STORE.rpush("exhausted", "#{job["class"]}: #{error.message}") }

  def perform
    raise ArgumentError, "as it should"
  end
end

class Long
  include Sidekiq::Worker

  # The first run does not end by itself.
  def perform(key)
    tries = STORE.incr(key)
    STORE.rpush("#{key}:begun", tries)
    Redis.new(url: URL, timeout: WAIT_S).blpop("never", timeout: WAIT_S) if tries == 1
    STORE.rpush("#{key}:done", tries)
  end
end

def check(what, found, wanted)
  raise "#{what}: #{found.inspect} instead of #{wanted.inspect}" unless found == wanted
end

def wait_for(what)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + WAIT_S
  until (found = yield)
    raise "gave up waiting for #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

    sleep 0.02
  end
  found
end

def next_of(key)
  found = STORE.blpop(key, timeout: 4) || STORE.blpop(key, timeout: 4)
  found ||= wait_for("an entry of #{key}") { (entry = STORE.lpop(key)) && [key, entry] }
  found[1]
end

# It waits longer for its threads than they wait for jobs (2 s): one that still waits would take what is put back.
def worker
  command = %w[sidekiq -c 4 -t 3 -q critical,2 -q default -r] + [File.expand_path(__FILE__)]
  spawn({"KEDIS_PORT" => PORT.to_s, "RUBYOPT" => "-W0"}, *command, out: File::NULL)
end

def jobs
  (1..100).each { |n| Add.perform_async("sums", n, n) }
  found = Array.new(100) { Integer(next_of("sums")) }
  check("sums", found.sort, (1..100).map { |n| 2 * n })
  ids = Sidekiq::Client.push_bulk("class" => Add, "args" => (1..200).map { |n| ["bulk", n, 0] })
  check("ids of a bulk", ids.uniq.size, 200)
  check("a bulk", Array.new(200) { Integer(next_of("bulk")) }.sort, (1..200).to_a)
end

def scheduled
  due = Time.now.to_f + 1
  Now.perform_at(due, "late")
  id = Now.perform_in(3600, "much later")
  far = Now.perform_in(7200, "never")
  set = Sidekiq::ScheduledSet.new
  check("what is scheduled is due", set.find_job(id).at.to_i > due, true)
  ran = Float(next_of("late"))
  raise "ran at #{ran}, due at #{due}" if ran < due

  check("scheduled", set.size, 2)
  check("found by a pattern", set.scan("much later").map(&:jid), [id])
  set.find_job(id).reschedule(Time.now.to_f)
  next_of("much later")
  set.find_job(far).delete
  check("scheduled", set.size, 0)
end

def retries
  id = Stubborn.perform_async("tries")
  set = Sidekiq::RetrySet.new
  entry = wait_for("a retry") { set.find_job(id) }
  check("its error", [entry["error_message"], entry["retry_count"], entry.error?], ["not yet", 0, true])
  entry.retry
  entry = wait_for("another retry") { STORE.get("tries") == "2" && set.find_job(id) }
  # The worker itself finds that it is due.
  entry.reschedule(Time.now.to_f)
  check("tries", next_of("tries:done"), "3")
  check("retries", set.size, 0)
end

def dead
  id = Broken.perform_async
  check("its end", next_of("exhausted"), "Broken: as it should")
  set = Sidekiq::DeadSet.new
  entry = wait_for("a dead job") { set.find_job(id) }
  check("its error", [entry["error_class"], entry.queue], ["ArgumentError", "critical"])
  entry.retry
  check("its end", next_of("exhausted"), "Broken: as it should")
  wait_for("a dead job") { set.find_job(id) }
  check("dead", set.size, 1)
  set.clear
  check("dead", set.size, 0)
end

def queues
  ids = (1..50).map { |n| Add.set(queue: "unattended").perform_async("unattended", n, 0) }
  queue = Sidekiq::Queue.new("unattended")
  check("size", queue.size, 50)
  check("queues", Sidekiq::Queue.all.map(&:name).sort, %w[critical default unattended])
  check("the newest first", queue.map { |job| job.args[1] }, (1..50).to_a.reverse)
  raise "latency #{queue.latency}" unless queue.latency.between?(0, WAIT_S)

  queue.find_job(ids[7]).delete
  check("one is gone", [queue.size, queue.find_job(ids[7])], [49, nil])
  check("all queues", Sidekiq::Stats::Queues.new.lengths["unattended"], 49)
  queue.clear
  check("cleared", [queue.size, Sidekiq::Queue.all.map(&:name).include?("unattended")], [0, false])
end

# A worker that is stopped puts back what it does not end in time, and the next one does it.
def stopped(first)
  id = Long.perform_async("long")
  check("begun", next_of("long:begun"), "1")
  work = wait_for("what workers do") { Sidekiq::WorkSet.new.map { |_, _, job| job["payload"] }.first }
  check("the work", work["jid"], id)
  process = Sidekiq::ProcessSet.new.first
  check("its queues", process.queues.uniq.sort, %w[critical default])
  check("its threads", [process["concurrency"], process["busy"]], [4, 1])
  process.stop!
  Process.wait(first)
  check("its end", $?.exitstatus, 0)
  check("put back", Sidekiq::Queue.new.map(&:jid), [id])
  second = worker
  check("again", next_of("long:done"), "2")
  second
end

def main
  first = worker
  wait_for("the worker") { Sidekiq::ProcessSet.new.size == 1 }
  jobs
  scheduled
  retries
  dead
  queues
  second = stopped(first)
  Process.kill("TERM", second)
  Process.wait(second)
  check("the end of the second worker", $?.exitstatus, 0)
  stats = Sidekiq::Stats.new
  # Each run counts, and that of the job which was put back as one that has failed.
  check("processed and failed", [stats.processed, stats.failed], [309, 5])
  check("left", [stats.enqueued, stats.retry_size, stats.scheduled_size, stats.dead_size], [0, 0, 0, 0])
end

main if $PROGRAM_NAME == __FILE__
