// Signals between GPUs of different processes, through memory that both can write; one thread each.
// A flag only grows: by one with each signal. Both sides keep a count of their own, so a graph can repeat the calls.

extern "C" __global__ void signal_flag(unsigned long long *there, unsigned long long *sent) {
    unsigned long long number = *sent + 1;
    *sent = number;
    __threadfence_system();  // what this stream has written before is seen first
    *(volatile unsigned long long *)there = number;
    __threadfence_system();
}

extern "C" __global__ void await_flag(unsigned long long *here, unsigned long long *awaited) {
    unsigned long long number = *awaited + 1;
    while (*(volatile unsigned long long *)here < number) {
        __nanosleep(200);
    }
    *awaited = number;
    __threadfence_system();  // what this stream reads from now on is read after
}
