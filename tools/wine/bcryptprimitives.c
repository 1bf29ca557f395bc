// bcryptprimitives.dll for Wine: Go takes its random numbers from the one function
// of it that Wine lacks. ProcessPrng fills a buffer from RtlGenRandom, which advapi32
// exports by the name SystemFunction036.
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length)
{
    const ULONG most = 1ul << 30;

    while (length > 0) {
        ULONG part = length < most ? (ULONG)length : most;
        if (!SystemFunction036(data, part))
            return FALSE;
        data += part;
        length -= part;
    }
    return TRUE;
}
